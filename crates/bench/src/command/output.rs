//! Where reports go, and what is done with those that were written: the terminal and files.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::Failure;
use crate::Report;
use crate::compare::compare;
use crate::figures::{View, view_of};
use crate::files::{can_write, write_whole};
use crate::html::html;
use crate::markdown::markdown;
use crate::plot::plot;
use crate::terminal::text_table;

/// The requested files.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Outputs {
    /// Write the report as JSON to this file; `-`: to standard output, instead of the table.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Write the tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Draw the rates, or what the workload shows over time, into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write everything as one page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Outputs {
    /// Fails if one of them cannot be written.
    pub fn check(&self) -> Result<(), Failure> {
        let json = self.json.as_ref().filter(|path| *path != Path::new("-"));
        for path in
            [json, self.markdown.as_ref(), self.svg.as_ref(), self.html.as_ref()].into_iter().flatten()
        {
            can_write(path).map_err(failed("writing", path))?;
        }
        Ok(())
    }

    /// Writes and prints a report. A report without runs is not written: it would replace a better one.
    pub fn write(&self, report: &Report, view: &View) -> Result<(), Failure> {
        if report.is_void() {
            return Ok(());
        }
        let json_to_stdout = self.json.as_deref() == Some(Path::new("-"));
        if let Some(path) = self.json.as_deref().filter(|_| !json_to_stdout) {
            write(path, &report.to_json())?;
        }
        if let Some(path) = &self.markdown {
            write(path, &markdown(report, view.table))?;
        }
        if let Some(path) = &self.svg
            && let Some((_, first)) = view.plots.first()
        {
            write(path, &plot(report, first))?;
        }
        if let Some(path) = &self.html {
            write(path, &html(&[(report, view)]))?;
        }
        print(&if json_to_stdout { report.to_json() } else { text_table(report, view.terminal()) })
    }
}

/// Writes everything of a figure into `dir`: NAME.json, NAME.md, NAME.html, and NAME.svg or NAME-PLOT.svg.
pub(super) fn write_all(dir: &Path, report: &Report, view: &View) -> Result<Vec<PathBuf>, Failure> {
    let texts = [
        (".json".to_string(), report.to_json()),
        (".md".to_string(), markdown(report, view.table)),
        (".html".to_string(), html(&[(report, view)])),
    ];
    let plots = view.plots.iter().map(|(suffix, spec)| (format!("{suffix}.svg"), plot(report, spec)));
    let files = texts.into_iter().chain(plots).map(|(end, text)| {
        let path = dir.join(format!("{}{end}", report.name));
        write(&path, &text).map(|()| path)
    });
    files.collect()
}

/// Reads a report.
pub(super) fn read(path: &Path) -> Result<Report, Failure> {
    let text = std::fs::read_to_string(path).map_err(failed("reading", path))?;
    Report::from_json(&text).map_err(|error| Failure::new(format!("{} {error}", path.display())))
}

/// Prints text; a reader that closes the output early is no error.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("writing standard output: {error}")))
        }
        _ => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    write_whole(path, text).map_err(failed("writing", path))
}

/// What failed with a file, for `map_err`.
pub(super) fn failed(doing: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    let what = format!("{doing} {}", path.display());
    move |error| Failure::new(format!("{what}: {error}"))
}

/// The reports, and the page.
#[derive(Debug, clap::Args)]
pub(super) struct PageArgs {
    /// Reports as JSON, in the order of the page.
    #[arg(required = true)]
    reports: Vec<PathBuf>,
    /// The page.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl PageArgs {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let reports: Vec<Report> = self.reports.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
        let views: Vec<View> = reports.iter().map(view_of).collect();
        write(&self.out, &html(&reports.iter().zip(&views).collect::<Vec<_>>()))
    }
}

const REGRESSED: u8 = 3;

/// The compared reports.
#[derive(Debug, clap::Args)]
pub(super) struct CompareArgs {
    /// The older one, as JSON.
    old: PathBuf,
    /// The newer one, as JSON.
    new: PathBuf,
}

impl CompareArgs {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let comparison = compare(&read(&self.old)?, &read(&self.new)?);
        print(&comparison.to_string())?;
        match comparison.has_regressions() {
            true => Err(Failure { text: String::new(), code: REGRESSED }),
            false => Ok(()),
        }
    }
}
