//! Bindings that can be read where they stand: a short closure, one thing by each `let`.

use regex_lite::Regex;

use crate::{
    lexer::{Source, closing},
    modules::production,
    report::Offenders,
    workspace::crates,
};

/// The most lines of a closure that is bound to a name, without its first and its last, which have its braces.
const LONGEST_CLOSURE: usize = 3;

#[test]
fn closures_of_more_than_three_lines_are_functions() {
    let mut offenders = Offenders::default();
    for module in crates().iter().filter(|krate| krate.is_product()).flat_map(production) {
        for binding in bindings(&module.source) {
            let lines = closure_lines(binding.value);
            if lines > LONGEST_CLOSURE {
                offenders.add(&module.file, module.source.line(binding.at), &format!("{}: {lines}", binding.pattern));
            }
        }
    }
    offenders.assert_none("a closure that has a name, and more than three lines between its first and its last, is a function (name: lines):");
}

#[test]
fn a_let_binds_one_thing() {
    let mut offenders = Offenders::default();
    for module in crates().iter().filter(|krate| krate.is_product()).flat_map(production) {
        for binding in bindings(&module.source).filter(Binding::is_pair) {
            offenders.add(&module.file, module.source.line(binding.at), binding.pattern);
        }
    }
    offenders.assert_none("things that have nothing to do with each other are bound by a `let` each, not by a tuple:");
}

/// A `let` of something.
struct Binding<'a> {
    at: usize,
    /// What it is bound to, without `mut` and the type.
    pattern: &'a str,
    /// What is bound, up to the semicolon.
    value: &'a str,
}

impl Binding<'_> {
    /// Whether both sides are tuples in parentheses: `let (a, b) = (c, d);`. With an `else` it is one question about both.
    fn is_pair(&self) -> bool {
        let value = self.value.as_bytes();
        self.pattern.starts_with('(') && value.first() == Some(&b'(') && closing(value, 0) == value.len()
    }
}

/// Every `let` of a file that gives its name a value.
fn bindings(source: &Source) -> impl Iterator<Item = Binding<'_>> {
    let code = source.code.as_str();
    let start = Regex::new(r"\blet\s+(?:mut\s+)?").unwrap();
    let starts: Vec<_> = start.find_iter(code).map(|found| found.range()).collect();
    starts.into_iter().filter_map(|start| {
        let (left, value) = statement(&code[start.end..]).split_once(" =")?;
        let pattern = left.split(": ").next()?;
        Some(Binding { at: start.start, pattern, value: value.trim() })
    })
}

/// The code up to the semicolon that ends the statement here.
fn statement(code: &str) -> &str {
    let bytes = code.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' | b'{' => at = closing(bytes, at),
            b';' | b')' | b']' | b'}' => break,
            _ => at += 1,
        }
    }
    &code[..at]
}

/// How many lines a closure has between its first and its last; none, where the value is something else.
fn closure_lines(value: &str) -> usize {
    let closure = Regex::new(r"^(?:&|mut\s|move\s|async\s)*\s*\|").unwrap();
    if closure.is_match(value) { value.lines().count().saturating_sub(2) } else { 0 }
}

#[test]
fn bindings_are_read_in_every_form() {
    let found = |code: &str| {
        let source = Source::production(code);
        let bindings = bindings(&source).map(|it| (it.pattern.to_owned(), it.is_pair(), closure_lines(it.value)));
        bindings.collect::<Vec<_>>()
    };
    for pairs in
        ["let (a, mut b) = (1, f(2));", "let (mut a, b): (u8, u8) =\n    (1, 2);", "let ((a, b), c) = (f(), g());"]
    {
        assert!(found(pairs)[0].1, "{pairs}");
    }
    for other in [
        "let (a, b) = f((1, 2));",
        "let (Some(a), Some(b)) = (c, d) else { return };",
        "if let (Some(a), Some(b)) = (c, d) { e; }",
        "let (a, b) = (c, d).max(e);",
        "let a = (b, c);",
    ] {
        assert!(!found(other)[0].1, "{other}");
    }
    for (lines, closure) in [
        (0, "let f = |a| a + 1;"),
        (3, "let f =\n move |a: &str| -> u8 {\n a;\n b;\n c\n };"),
        (2, "let f: &dyn Fn(u8) = &|a, b| match a {\n 1 => 2,\n _ => 3,\n };"),
        (1, "let mut f = || a\n .b(|c| { d })\n .e();"),
        (0, "let a = b.map(|c| {\n d;\n e;\n f;\n g\n });"),
    ] {
        assert_eq!(found(closure)[0].2, lines, "{closure}");
    }
}
