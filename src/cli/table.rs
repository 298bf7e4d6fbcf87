//! Tables for people: aligned columns, colours on a terminal only.
//!
//! Cells may hold whatever somebody named an object; control characters are escaped, so that no name can
//! drive the terminal.

use std::fmt::Write as _;
use std::io::IsTerminal;

/// What a cell means, shown as a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
    Faint,
}

/// One cell.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub fn new(text: impl AsRef<str>, tone: Tone) -> Self {
        let mut shown = String::new();
        for character in text.as_ref().chars() {
            match character.is_control() {
                true => shown.extend(character.escape_default()),
                false => shown.push(character),
            }
        }
        Self { text: shown, tone }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// Rows under a head.
#[derive(Clone, Debug)]
pub struct Table<const COLUMNS: usize> {
    rows: Vec<[Cell; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub fn new(head: [&str; COLUMNS]) -> Self {
        Self { rows: vec![head.map(|title| Cell::new(title, Tone::Faint))] }
    }

    pub fn add(&mut self, row: [Cell; COLUMNS]) {
        self.rows.push(row);
    }

    /// The whole table, with a line break after each row.
    pub fn render(&self, colours: bool) -> String {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let mut out = String::new();
        for row in &self.rows {
            write_row(&mut out, row, &widths, colours);
        }
        out
    }
}

fn write_row(out: &mut String, row: &[Cell], widths: &[usize], colours: bool) {
    let mut gap = 0;
    for (cell, width) in row.iter().zip(widths) {
        if cell.text.is_empty() {
            gap += width + 2;
            continue;
        }
        let text = coloured(&cell.text, cell.tone, colours);
        // Writing to a string cannot fail.
        let _ = write!(out, "{:gap$}{text}", "");
        gap = width.saturating_sub(cell.text.chars().count()) + 2;
    }
    out.push('\n');
}

/// `text` in the colour of `tone`.
pub fn coloured(text: &str, tone: Tone, colours: bool) -> String {
    let code = match tone {
        _ if !colours => return text.to_owned(),
        Tone::Plain => return text.to_owned(),
        Tone::Good => 32,
        Tone::Warning => 33,
        Tone::Bad => 31,
        Tone::Faint => 2,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Whether standard output is a terminal that shows colours, and nobody asked for none (no-color.org).
pub fn colours() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    std::io::stdout().is_terminal()
        && set("NO_COLOR").is_none()
        && set("TERM").is_some_and(|terminal| terminal != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<3> {
        let mut table = Table::new(["NAME", "STATE", "NOTE"]);
        table.add(["a".into(), Cell::new("good", Tone::Good), "x".into()]);
        table.add(["longer".into(), "".into(), "y\x1b[2J\n".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_lines_end_where_their_text_does() {
        assert_eq!(
            table().render(false),
            "NAME    STATE  NOTE\n\
             a       good   x\n\
             longer         y\\u{1b}[2J\\n\n"
        );
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let coloured = table().render(true);
        assert!(coloured.contains("\x1b[32mgood\x1b[0m   x"), "{coloured:?}");
        let plain = ["\x1b[32m", "\x1b[2m", "\x1b[0m"].iter().fold(coloured, |text, c| text.replace(c, ""));
        assert_eq!(plain, table().render(false));
    }
}
