//! Reports as a self-contained page for the browser.

use std::fmt::{self, Write};

use crate::figures::View;
use crate::head;
use crate::number::utc;
use crate::plot::plot;
use crate::report::{Report, Row};
use crate::table::{Grid, PARTIAL_NOTE};

const STYLE: &str = include_str!("html.css");

/// The page: a table of contents, and for each report the head, plots, tables, notes, and all metrics folded away. All
/// but the plots is escaped.
///
/// # Panics
/// If there is no metric of a name in a view.
pub(crate) fn html(sections: &[(&Report, &View)]) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut page, sections);
    page
}

fn write_page(page: &mut String, sections: &[(&Report, &View)]) -> fmt::Result {
    let title = match sections {
        [(report, _)] => Escaped(&report.title).to_string(),
        _ => "Benchmarks".to_string(),
    };
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<nav>\n<ol>\n"
    )?;
    for (index, (report, _)) in sections.iter().enumerate() {
        let began = utc(report.began_ms);
        let title = Escaped(&report.title);
        writeln!(page, "<li><a href=\"#section-{}\">{title}</a> <small>{began}</small></li>", index + 1)?;
    }
    page.push_str("</ol>\n</nav>\n");
    for (index, (report, view)) in sections.iter().enumerate() {
        writeln!(page, "<section id=\"section-{}\">", index + 1)?;
        write_section(page, report, view)?;
        page.push_str("</section>\n");
    }
    page.push_str("</body>\n</html>\n");
    Ok(())
}

fn write_section(page: &mut String, report: &Report, view: &View) -> fmt::Result {
    writeln!(page, "<h2>{}</h2>", Escaped(&report.title))?;
    write_facts(page, &head::facts(report))?;
    write_list(page, "Warnings", "warnings", &head::warnings(report))?;
    for (_, spec) in &view.plots {
        let (svg, caption) = (plot(report, spec), Escaped(spec.title));
        writeln!(page, "<figure>\n{svg}<figcaption>{caption}</figcaption>\n</figure>")?;
    }
    for (title, grid) in Grid::all(report, view.table) {
        writeln!(page, "<h3>{}</h3>", Escaped(&title))?;
        write_grid(page, &grid)?;
    }
    if report.rows.iter().any(Row::is_partial) {
        writeln!(page, "<p>{PARTIAL_NOTE}</p>")?;
    }
    write_list(page, "Notes", "notes", &report.notes)?;
    page.push_str("<h3>Engines</h3>\n");
    write_facts(page, &head::engines(report))?;
    page.push_str(
        "<details>\n<summary>All metrics: medians, and the smallest and the largest round</summary>\n",
    );
    for (title, grid) in Grid::of_metrics(report) {
        if !title.is_empty() {
            writeln!(page, "<h4>{}</h4>", Escaped(&title))?;
        }
        write_grid(page, &grid)?;
    }
    page.push_str("</details>\n");
    for (title, grid) in Grid::of_seconds(report) {
        writeln!(page, "<details>\n<summary>{}</summary>", Escaped(&title))?;
        write_grid(page, &grid)?;
        page.push_str("</details>\n");
    }
    Ok(())
}

fn write_facts(page: &mut String, facts: &[(String, String)]) -> fmt::Result {
    page.push_str("<dl>\n");
    for (name, value) in facts {
        writeln!(page, "<dt>{}</dt><dd>{}</dd>", Escaped(name), Escaped(value))?;
    }
    page.push_str("</dl>\n");
    Ok(())
}

fn write_list(page: &mut String, title: &str, class: &str, sentences: &[String]) -> fmt::Result {
    if sentences.is_empty() {
        return Ok(());
    }
    writeln!(page, "<h3>{title}</h3>\n<ul class=\"{class}\">")?;
    for sentence in sentences {
        writeln!(page, "<li>{}</li>", Escaped(sentence))?;
    }
    page.push_str("</ul>\n");
    Ok(())
}

fn write_grid(page: &mut String, grid: &Grid) -> fmt::Result {
    let class = |column: usize| if grid.heads[column].is_number { " class=\"number\"" } else { "" };
    page.push_str("<div class=\"wide\">\n<table>\n<thead><tr>");
    for (column, head) in grid.heads.iter().enumerate() {
        write!(page, "<th{}>{}</th>", class(column), Escaped(&head.text))?;
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &grid.rows {
        page.push_str(if row.opens_group { "<tr class=\"first\">" } else { "<tr>" });
        for (column, entry) in row.entries.iter().enumerate() {
            write!(page, "<td{}>{}</td>", class(column), Escaped(entry))?;
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n</div>\n");
    if grid.reasons.is_empty() {
        return Ok(());
    }
    page.push_str("<p>n/a:</p>\n<ol>\n");
    for reason in &grid.reasons {
        writeln!(page, "<li>{}</li>", Escaped(reason))?;
    }
    page.push_str("</ol>\n");
    Ok(())
}

/// Text that HTML and SVG show as it is, within elements and attributes.
pub(crate) struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::rates;
    use crate::plot::{PlotSpec, X};
    use crate::report_tests::{assert_in_order, paced, row, sample};
    use crate::table::TableSpec;

    fn page() -> String {
        let mut report = sample();
        report.notes.push("<script>alert('1')</script>".into());
        report.rows[0].label = "<b>\"full\"</b>".into();
        let rates = PlotSpec { title: "rates & <more>", ..rates("", X::Threads) };
        let full = View { table: &TableSpec::FULL, plots: vec![("", rates)] };
        let terminal = View { table: &TableSpec::TERMINAL, plots: vec![] };
        html(&[(&report, &full), (&sample(), &terminal)])
    }

    #[test]
    fn texts_are_escaped() {
        let page = page();
        assert!(page.contains("<li>&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;</li>"), "{page}");
        assert!(page.contains("<td>&lt;b&gt;&quot;full&quot;&lt;/b&gt;</td>"), "{page}");
        assert!(page.contains("</svg>\n<figcaption>rates &amp; &lt;more&gt;</figcaption>"), "{page}");
        assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = page();
        for resource in ["<link", "<img", "@import", "url(", "src="] {
            assert!(!page.contains(resource), "{resource}");
        }
        assert!(page.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn seconds_are_tables_that_are_put_away() {
        let report = Report { rows: vec![row("<a>", 1, vec![paced(1, 100)])], ..sample() };
        let page = html(&[(&report, &View { table: &TableSpec::TAILS, plots: vec![] })]);
        let texts =
            ["<summary>&lt;a&gt;, second by second (round 1)</summary>", "<th class=\"number\">p99 us</th>"];
        assert_in_order(&page, &texts);
        assert_eq!(page.matches("<details>").count(), page.matches("</details>").count());
    }

    #[test]
    fn sections_have_head_table_reasons_and_all_metrics() {
        let page = page();
        let texts = [
            "<li><a href=\"#section-2\">Inserts &amp; &lt;syncs&gt;</a> <small>2026-03-01 17:05 UTC</small></li>",
            "<section id=\"section-2\">",
            "<dt>kernel</dt><dd>6.1.0</dd>",
            "<th class=\"number\">to baseline</th>",
            "<tr class=\"first\"><td class=\"number\">8</td><td>fulgurite</td><td class=\"number\">96,000</td>",
            "<li>lmdb: it has no &lt;transactions&gt; | of several statements</li>",
            "<h3>insert by kind of operation</h3>",
            "<details>",
            "<h4>8 threads</h4>",
            "<tr><td>operations_per_second</td><td class=\"number\">96,000 (91,200–101,000)</td>",
        ];
        assert_in_order(&page, &texts);
    }
}
