//! Within a crate the top-level modules form no import cycle.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write,
    path::Path,
};

use regex_lite::Regex;

use crate::{
    modules::{Module, inline, modules},
    report::Offenders,
    workspace::{crates, shown},
};

/// Which top-level module uses which, and where it first does.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn modules_form_no_cycle() {
    let mut offenders = Offenders::default();
    for krate in crates() {
        for root in &krate.roots {
            let graph = graph(root);
            let members = knots(&graph).iter().map(BTreeSet::len).sum();
            let mut text = String::new();
            describe(&krate.name, &graph, &mut text);
            for _ in 0..members {
                offenders.add(root, 1, &std::mem::take(&mut text));
            }
        }
    }
    offenders.assert_known("cycles", "modules in import cycles between top-level modules:");
}

/// Writes down what is wrong with a crate: one shortest cycle for each knot, and every pair that uses each other.
fn describe(krate: &str, graph: &Graph, offenders: &mut String) {
    for knot in knots(graph) {
        let cycle = knot.iter().filter_map(|module| shortest_cycle(graph, module)).min_by_key(Vec::len).unwrap();
        let members = knot.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        writeln!(offenders, "\n{krate}: {} of {} modules form a cycle: {members}", knot.len(), graph.len()).unwrap();
        writeln!(offenders, "  {}", print(graph, &cycle)).unwrap();
        let others = pairs(graph, &knot).into_iter().filter(|(from, to)| cycle != [(*from).clone(), (*to).clone()]);
        for (from, to) in others {
            writeln!(offenders, "  {from} -> {to} ({}) -> {from} ({})", graph[from][to], graph[to][from]).unwrap();
        }
    }
}

/// Prints `a -> b (file:line) -> a (file:line)`.
fn print(graph: &Graph, cycle: &[String]) -> String {
    let mut text = cycle[0].clone();
    for (from, to) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
        write!(text, " -> {to} ({})", graph[from][to]).unwrap();
    }
    text
}

fn pairs<'a>(graph: &'a Graph, knot: &'a BTreeSet<String>) -> Vec<(&'a String, &'a String)> {
    let edges = knot.iter().flat_map(|from| graph[from].keys().map(move |to| (from, to)));
    edges.filter(|(from, to)| from < to && graph.get(*to).is_some_and(|uses| uses.contains_key(*from))).collect()
}

/// Groups of modules that all reach one another.
fn knots(graph: &Graph) -> BTreeSet<BTreeSet<String>> {
    let reach: BTreeMap<_, _> = graph.keys().map(|module| (module, reachable(graph, module))).collect();
    let knot = |module| reach[module].iter().filter(|other| reach[*other].contains(module)).cloned().collect();
    graph.keys().filter(|module| reach[module].contains(*module)).map(knot).collect()
}

fn reachable(graph: &Graph, from: &String) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut pending: Vec<_> = graph[from].keys().collect();
    while let Some(module) = pending.pop() {
        if seen.insert(module.clone()) {
            pending.extend(graph[module].keys());
        }
    }
    seen
}

/// The shortest way from a module back to it.
fn shortest_cycle(graph: &Graph, start: &String) -> Option<Vec<String>> {
    let mut before: BTreeMap<&String, &String> = BTreeMap::new();
    let mut pending = VecDeque::from([start]);
    while let Some(module) = pending.pop_front() {
        for next in graph[module].keys() {
            if next == start {
                let mut way = vec![module.clone()];
                while way.last() != Some(start) {
                    way.push(before[way.last().unwrap()].clone());
                }
                way.reverse();
                return Some(way);
            }
            if !before.contains_key(next) {
                before.insert(next, module);
                pending.push_back(next);
            }
        }
    }
    None
}

/// Reads which top-level modules of a crate use which.
fn graph(root: &Path) -> Graph {
    let modules = modules(root);
    let exported = exports(&modules[0].source.code);
    let tops: BTreeSet<_> = modules.iter().filter_map(|module| module.path.first()).collect();
    let mut graph: Graph = tops.iter().map(|top| ((*top).clone(), BTreeMap::new())).collect();
    for module in modules.iter().filter(|module| !module.path.is_empty()) {
        for (used, at) in imports(module) {
            let used = exported.get(&used).unwrap_or(&used);
            if *used != module.path[0] && tops.contains(used) {
                let place = format!("{}:{}", shown(&module.file), module.source.line(at));
                graph.get_mut(&module.path[0]).unwrap().entry(used.clone()).or_insert(place);
            }
        }
    }
    graph
}

/// What of the crate's root a module names, and where.
fn imports(module: &Module) -> Vec<(String, usize)> {
    let code = &module.source.code;
    let path = Regex::new(r"\b(crate|self|super)\b((?:\s*::\s*super\b)*)\s*::\s*").unwrap();
    let mut found = Vec::new();
    for start in path.captures_iter(code) {
        let at = start.get(0).unwrap();
        if code[..at.start()].trim_end().ends_with("::") || code[..at.start()].ends_with("(in ") {
            continue;
        }
        let mut base = module.path.clone();
        base.extend(inline(code, at.start()));
        let up = start[2].matches("super").count() + usize::from(&start[1] == "super");
        base.truncate(if &start[1] == "crate" { 0 } else { base.len().saturating_sub(up) });
        match base.first() {
            Some(top) => found.push((top.clone(), at.start())),
            None => found.extend(heads(&code[at.end()..]).into_iter().map(|head| (head, at.start()))),
        }
    }
    found
}

/// The first names of a path or of each path of a group: `a::b` gives `a`, `{a::b, c::{d, e}}` gives `a` and `c`.
fn heads(tree: &str) -> Vec<String> {
    let name =
        |text: &str| text.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned();
    if tree.starts_with('{') { split(group(tree)).iter().map(|part| name(part)).collect() } else { vec![name(tree)] }
}

/// What is between the brace here and the one that closes it.
fn group(tree: &str) -> &str {
    let mut depth = 0;
    for (at, byte) in tree.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &tree[1..at];
        }
    }
    &tree[1..]
}

/// Splits at commas outside braces.
fn split(group: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts
}

/// Which names the crate's root takes from which of its modules, as in `pub use node::Node`.
fn exports(root: &str) -> BTreeMap<String, String> {
    let import = Regex::new(r"\buse\s+(?:crate::|self::)?(\w+)\s*::\s*([^;]*);").unwrap();
    let name = Regex::new(r"(\w+)\s*$").unwrap();
    let mut exported = BTreeMap::new();
    for found in import.captures_iter(root) {
        let mut pending = vec![found[2].to_owned()];
        while let Some(tree) = pending.pop() {
            if let Some(open) = tree.find('{') {
                pending.extend(split(group(&tree[open..])).into_iter().map(str::to_owned));
            } else if let Some(name) = name.captures(&tree) {
                exported.insert(name[1].to_owned(), found[1].to_owned());
            }
        }
    }
    exported
}

#[test]
fn imports_are_read_in_every_form() {
    let source = "use crate::{a, b::{c, d}, e as f};\nuse super::g;\nuse super::super::h::i;\nmod k { use super::super::super::l; }\n\
                  pub(in crate::m) fn n() -> crate::o::P { std::iter::empty(self::q()) }";
    let module = Module {
        file: "x.rs".into(),
        path: vec!["x".into(), "y".into()],
        source: crate::lexer::Source::production(source),
    };
    let found: Vec<_> = imports(&module).into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, ["a", "b", "e", "x", "h", "l", "o", "x"]);
}

#[test]
fn names_of_the_root_lead_to_their_modules() {
    let exported = exports("mod a;\npub use a::{B, c::D as E};\nuse self::f::G;");
    let expected = [("B", "a"), ("E", "a"), ("G", "f")].map(|(name, module)| (name.to_owned(), module.to_owned()));
    assert_eq!(exported, expected.into());
}

#[test]
fn a_cycle_is_printed_with_its_places() {
    let edge = |to: &str, place: &str| (to.to_owned(), place.to_owned());
    let graph: Graph = [
        ("a".to_owned(), [edge("b", "a.rs:1"), edge("d", "a.rs:2")].into()),
        ("b".to_owned(), [edge("c", "b.rs:3")].into()),
        ("c".to_owned(), [edge("a", "c.rs:4")].into()),
        ("d".to_owned(), BTreeMap::new()),
    ]
    .into();
    let mut text = String::new();
    describe("x", &graph, &mut text);
    assert_eq!(text.trim(), "x: 3 of 4 modules form a cycle: a, b, c\n  a -> b (a.rs:1) -> c (b.rs:3) -> a (c.rs:4)");
}
