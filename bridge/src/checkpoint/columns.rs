//! Text in columns.

/// On which side of its column a cell stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    /// Numbers, so that their digits stand below each other.
    Right,
}

/// Rows below a heading.
#[derive(Debug)]
pub(crate) struct Columns<const N: usize> {
    sides: [Side; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Columns<N> {
    pub(crate) fn new(heading: [(&str, Side); N]) -> Self {
        Self { sides: heading.map(|(_, side)| side), rows: vec![heading.map(|(name, _)| name.to_owned())] }
    }

    pub(crate) fn add(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// Writes the rows, two blanks between columns, none at the end of a line.
    pub(crate) fn text(&self) -> String {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        self.rows.iter().map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &[String; N], widths: &[usize; N]) -> String {
        let cells = row.iter().zip(widths).zip(&self.sides).map(|((cell, width), side)| match side {
            Side::Left => format!("{cell:<width$}"),
            Side::Right => format!("{cell:>width$}"),
        });
        let cells: Vec<_> = cells.collect();
        format!("{}\n", cells.join("  ").trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::{Columns, Side};

    /// [CHK-18]
    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut columns = Columns::new([("A", Side::Right), ("NAME", Side::Left), ("END", Side::Left)]);
        columns.add(["1000".into(), "ü".into(), String::new()]);
        columns.add(["7".into(), "längest".into(), "x".into()]);
        assert_eq!(columns.text(), "   A  NAME     END\n1000  ü\n   7  längest  x\n");
    }
}
