//! The columns that make the key and the value.

use std::str::FromStr;

use crate::failure::Failure;
use crate::text;

/// A column as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Its number, from 1.
    Number(usize),
    /// Its name in the header.
    Name(String),
}

impl FromStr for Column {
    type Err = String;

    fn from_str(text: &str) -> Result<Column, String> {
        match text.parse() {
            Ok(0) => Err("columns are counted from 1".into()),
            Ok(number) => Ok(Column::Number(number)),
            Err(_) if text.is_empty() => Err("a column has a number or a name".into()),
            Err(_) => Ok(Column::Name(text.into())),
        }
    }
}

/// The columns that make the value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueColumn {
    /// Everything but the key.
    Rest,
    /// One column.
    Column(Column),
}

impl FromStr for ValueColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<ValueColumn, String> {
        if text == "rest" { Ok(ValueColumn::Rest) } else { text.parse().map(ValueColumn::Column) }
    }
}

/// Which columns make the key and the value, by index from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    pub key: usize,
    /// `None`: everything but the key.
    pub value: Option<usize>,
}

impl Columns {
    /// Whether `key` or `value` can only be found with a header.
    pub fn need_header(key: &Column, value: &ValueColumn) -> bool {
        matches!(key, Column::Name(_)) || matches!(value, ValueColumn::Column(Column::Name(_)))
    }

    /// Finds the columns, by name in `header`.
    pub fn find(key: &Column, value: &ValueColumn, header: &[&[u8]], file: &str) -> Result<Columns, Failure> {
        let index = |column: &Column| match column {
            Column::Number(number) => Ok(number - 1),
            Column::Name(name) => {
                header.iter().position(|&found| found == name.as_bytes()).ok_or_else(|| {
                    let names: Vec<_> = header.iter().map(|name| text::quoted(name)).collect();
                    Failure::new(format!(
                        "{file} has no column \"{name}\"; its header has {}",
                        names.join(", ")
                    ))
                })
            }
        };
        let value = match value {
            ValueColumn::Rest => None,
            ValueColumn::Column(column) => Some(index(column)?),
        };
        Ok(Columns { key: index(key)?, value })
    }

    /// Why a row with `found` columns is bad.
    pub fn too_few(&self, found: usize) -> String {
        let wanted = (self.key + 1).max(self.value.map_or(2, |value| value + 1));
        format!("{} found, at least {wanted} expected", text::count(found as u64, "column"))
    }
}

/// The first line of a text without the byte order mark that some programs put there.
pub(crate) fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_numbers_names_or_the_rest() {
        assert_eq!("2".parse(), Ok(Column::Number(2)));
        assert_eq!("name".parse(), Ok(Column::Name("name".into())));
        assert_eq!("rest".parse(), Ok(ValueColumn::Rest));
        assert!("0".parse::<Column>().is_err());
        assert!("".parse::<Column>().is_err());
    }

    #[test]
    fn names_are_found_in_the_header() {
        let header: [&[u8]; 2] = [b"id", b"name"];
        let named = |name: &str| Column::Name(name.into());
        let found = Columns::find(&named("name"), &ValueColumn::Column(named("id")), &header, "f").unwrap();
        assert_eq!(found, Columns { key: 1, value: Some(0) });
        let missing = Columns::find(&named("mass"), &ValueColumn::Rest, &header, "f").unwrap_err();
        assert!(format!("{missing:?}").contains("no column"));
    }
}
