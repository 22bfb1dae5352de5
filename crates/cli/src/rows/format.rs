//! The format of a file: named by the command line, else by the file's extension.

use std::path::Path;

use clap::ValueEnum;

use crate::failure::Failure;

/// How rows are written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns with tabs between them, a row a line.
    Tsv,
    /// Columns with commas (or --delimiter) between them, in quotes where need be (RFC 4180).
    Csv,
    /// A JSON object a line.
    Jsonl,
}

/// The format on the command line.
#[derive(clap::Args)]
pub(crate) struct FormatArgs {
    /// How the rows are written [default: by the file's name, else TSV].
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// CSV: the separator of columns instead of a comma: one ASCII character; \t is a tab.
    #[arg(long, value_name = "CHARACTER", value_parser = parse_delimiter)]
    pub delimiter: Option<u8>,
}

impl FormatArgs {
    /// The format of the file `path`; `otherwise` if neither the option nor the name decides. A name that belongs to
    /// another format is refused: a file must not pretend to be of another format.
    pub fn resolve(&self, path: Option<&Path>, otherwise: Format) -> Result<Format, Failure> {
        let format = match self.format {
            Some(format) => Some(format),
            None => Format::of(path)?,
        };
        match (format, self.delimiter) {
            (None | Some(Format::Csv), Some(_)) => Ok(Format::Csv),
            (Some(_), Some(_)) => Err(Failure::usage("--delimiter goes with CSV only: add --format csv")),
            (format, None) => Ok(format.unwrap_or(otherwise)),
        }
    }

    /// The separator of CSV columns.
    pub fn delimiter(&self) -> u8 {
        self.delimiter.unwrap_or(b',')
    }
}

impl Format {
    /// The format that a file's name implies: `.tsv`, `.tab`, `.txt`, `.csv`, `.jsonl` and `.ndjson`, each perhaps with
    /// `.gz`; `None` if it has no extension.
    ///
    /// # Errors
    /// The extension is that of something else.
    pub fn of(path: Option<&Path>) -> Result<Option<Format>, Failure> {
        let name = path.and_then(Path::file_name).map(|name| name.to_string_lossy().to_ascii_lowercase());
        let name = name.unwrap_or_default();
        let Some((_, ending)) = name.strip_suffix(".gz").unwrap_or(&name).rsplit_once('.') else {
            return Ok(None);
        };
        match ending {
            "tsv" | "tab" | "txt" => Ok(Some(Format::Tsv)),
            "csv" => Ok(Some(Format::Csv)),
            "jsonl" | "ndjson" => Ok(Some(Format::Jsonl)),
            _ => Err(Failure::usage(format!(
                "no format is known for files that end with `.{ending}`: name one with --format tsv, csv or jsonl"
            ))),
        }
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Format::Tsv => "TSV",
            Format::Csv => "CSV",
            Format::Jsonl => "JSON lines",
        }
    }
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [b'"' | b'\n' | b'\r'] => Err("quotes and line breaks have a meaning of their own in CSV".into()),
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err("one ASCII character is expected, or \\t".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_format() {
        let of = |name: &str| Format::of(Some(Path::new(name))).ok().flatten();
        assert_eq!(of("a.csv"), Some(Format::Csv));
        assert_eq!(of("A.CSV.GZ"), Some(Format::Csv));
        assert_eq!(of("a.tsv"), Some(Format::Tsv));
        assert_eq!(of("x.y/z.jsonl.gz"), Some(Format::Jsonl));
        assert_eq!([of("csv"), of("x.y/z"), of("z.gz")], [None; 3]);
        assert!(Format::of(None).unwrap().is_none());
        for name in ["a.parquet", "a.json", "a.tsv.zst", "a.csv.xz"] {
            assert!(Format::of(Some(Path::new(name))).is_err(), "{name}");
        }
    }

    #[test]
    fn a_delimiter_means_csv_unless_something_else_was_said() {
        let args = |format, delimiter| FormatArgs { format, delimiter };
        let resolve = |args: FormatArgs, name: Option<&str>| {
            args.resolve(name.map(Path::new), Format::Tsv).map_err(|failure| format!("{failure:?}"))
        };
        assert_eq!(resolve(args(None, Some(b';')), None), Ok(Format::Csv));
        assert_eq!(resolve(args(None, Some(b';')), Some("a.csv")), Ok(Format::Csv));
        assert!(resolve(args(None, Some(b';')), Some("a.tsv")).is_err());
        assert!(resolve(args(Some(Format::Jsonl), Some(b';')), None).is_err());
        assert_eq!(resolve(args(Some(Format::Tsv), None), Some("a.parquet")), Ok(Format::Tsv));
        assert_eq!(resolve(args(None, None), None), Ok(Format::Tsv));
    }

    #[test]
    fn delimiters_are_single_characters() {
        assert_eq!(parse_delimiter(";"), Ok(b';'));
        assert_eq!(parse_delimiter("\\t"), Ok(b'\t'));
        for wrong in ["", ";;", "\"", "\n", "\u{e9}"] {
            assert!(parse_delimiter(wrong).is_err(), "{wrong:?}");
        }
    }
}
