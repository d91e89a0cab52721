//! Columns as Go's `text/tabwriter` aligns them, by which gpushare writes: a cell ends with a tab, a column is a run of lines that
//! have a cell there, and what follows a line's last tab belongs to no column.

/// Spaces between the widest cell of a column and the next.
const PADDING: usize = 2;

/// The text with its cells aligned.
pub(super) fn aligned(text: &str) -> String {
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    block(&lines, &mut Vec::new()).concat()
}

/// Lines of which the first columns have these widths.
fn block(lines: &[Vec<&str>], widths: &mut Vec<usize>) -> Vec<String> {
    let column = widths.len();
    let has_cell = |line: &Vec<&str>| line.len() > column + 1;
    let mut written = Vec::new();
    for run in lines.chunk_by(|a, b| has_cell(a) == has_cell(b)) {
        if run.first().is_some_and(has_cell) {
            let widest = run.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
            widths.push(widest + PADDING);
            written.extend(block(run, widths));
            widths.pop();
        } else {
            written.extend(run.iter().map(|line| one(line, widths)));
        }
    }
    written
}

fn one(line: &[&str], widths: &[usize]) -> String {
    let cell = |(at, cell): (usize, &&str)| match widths.get(at) {
        Some(width) => format!("{cell:width$}"),
        None => (*cell).to_owned(),
    };
    line.iter().enumerate().map(cell).chain(["\n".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_end_where_a_line_has_no_cell() {
        assert_eq!(aligned("a\tb\tc\nlong\tx\t\n-----\ny\tz\n"), "a     b  c\nlong  x  \n-----\ny  z\n");
        assert_eq!(aligned("\nNAME:\tn\nIPADDRESS:\tip\n\n"), "\nNAME:       n\nIPADDRESS:  ip\n\n");
        assert_eq!(aligned("é\tx\nab\ty\n"), "é   x\nab  y\n");
        assert_eq!(aligned(""), "");
    }
}
