//! Tests on the texts of pictures.

use super::*;
use crate::report::Row;
use crate::report_tests::{paced, rounds, row, run, sample};

const SPEC: PlotSpec = PlotSpec {
    title: "Durable <inserts>",
    x: X::Threads,
    y: "operations_per_second",
    kind: Kind::Bars,
    log_y: false,
};

/// The texts of a picture, in the order in which they are drawn.
fn texts(svg: &str) -> Vec<&str> {
    let after = svg.split("<text ").skip(1);
    after.filter_map(|text| Some(text.split_once('>')?.1.split_once("</text>")?.0.trim())).collect()
}

/// The values of an attribute of all elements of one name.
fn values(svg: &str, element: &str, attribute: &str) -> Vec<i32> {
    let elements = svg.lines().filter(|line| line.starts_with(&format!("<{element} ")));
    let value = |line: &str| line.split_once(&format!(" {attribute}=\""))?.1.split_once('"')?.0.parse().ok();
    elements.filter_map(value).collect()
}

/// Fourteen engines at three data points, one of them not available at one.
fn many() -> Report {
    let mut report = sample();
    report.rows.clear();
    for (threads, data_point) in [(1, "A1"), (8, "B1"), (64, "C1")] {
        for engine in 0..14 {
            let mut row =
                Row { data_point: data_point.into(), ..row(&format!("engine-{engine}"), threads, vec![]) };
            match (engine, data_point) {
                (3, "B1") => row.not_available = Some("no scans".into()),
                _ => row.runs = rounds((engine + 3) * 977 * u64::from(threads + 4)),
            }
            report.rows.push(row);
        }
    }
    report
}

#[test]
fn bars_have_figures_and_missing_ones_say_so() {
    let svg = plot(&sample(), &SPEC);
    assert!(svg.starts_with("<svg width=") && svg.ends_with("</svg>\n"), "{svg}");
    let texts = texts(&svg);
    assert_eq!(texts[0], "Durable &lt;inserts&gt;");
    for text in ["threads", "op/s", "8", "64", "96,000", "512,000", "fulgurite", "lmdb (n/a)"] {
        assert!(texts.contains(&text), "{text} is missing in {texts:?}");
    }
    assert_eq!(texts.iter().filter(|text| **text == "n/a").count(), 2);
}

#[test]
fn the_legend_is_beside_the_data() {
    for kind in [Kind::Lines, Kind::Bars] {
        let svg = plot(&many(), &PlotSpec { kind, x: X::DataPoints, ..SPEC });
        let foot = values(&svg, "line", "x2").into_iter().max().expect("a foot");
        let legend = svg.split("<text ").filter(|text| text.contains(">engine-"));
        let differences = legend.map(|text| values(&format!("<text {text}"), "text", "x")[0]);
        let differences: Vec<i32> = differences.collect();
        assert_eq!(differences.len(), 14);
        assert!(differences.iter().all(|x| *x > foot), "{differences:?} at {foot}");
    }
}

#[test]
fn higher_figures_have_higher_bars() {
    let svg = plot(&sample(), &PlotSpec { log_y: true, ..SPEC });
    let tall: Vec<i32> = values(&svg, "rect", "height").into_iter().filter(|height| *height > 40).collect();
    let [_, fulgurite_8, fulgurite_64, rocksdb_8, rocksdb_64] = tall[..] else {
        panic!("the ground and four bars, not {tall:?}")
    };
    assert!(fulgurite_64 > rocksdb_64 && rocksdb_64 > fulgurite_8 && fulgurite_8 > rocksdb_8, "{tall:?}");
}

#[test]
fn stacks_name_their_parts_and_their_bars() {
    let kind = Kind::Stacked(&["sync_lock_us", "sync_us", "flush_wait_us"]);
    let svg = plot(&sample(), &PlotSpec { kind, ..SPEC });
    let texts = texts(&svg);
    assert_eq!(texts.iter().filter(|text| **text == "60").count(), 4 + 1, "four sums and a mark: {texts:?}");
    for text in ["sync lock us", "sync us", "flush wait us"] {
        assert_eq!(texts.iter().filter(|known| **known == text).count(), 1, "{text} in {texts:?}");
    }
    assert_eq!(texts.iter().filter(|text| **text == "rocksdb").count(), 2);
}

#[test]
fn time_has_a_line_for_each_run() {
    let mut report = sample();
    report.rows = vec![row("a", 8, vec![run(1, 100), run(2, 300), run(3, 200)])];
    let spec = PlotSpec { x: X::Time, y: "disk_mib", ..SPEC };
    let svg = plot(&report, &spec);
    // Three runs and the line of the legend.
    assert_eq!(svg.matches("<polyline ").count(), 4);
    assert!(texts(&svg).contains(&"seconds"));
}

#[test]
fn tails_have_lines_ticks_and_the_bare_device() {
    let spec = PlotSpec { kind: Kind::Tails, x: X::Time, y: "p99_latency_us", log_y: true, ..SPEC };
    let mut report = sample();
    report.rows = vec![row("a", 8, vec![paced(1, 100), paced(2, 300), paced(3, 200)])];
    let svg = plot(&report, &spec);
    for text in ["a, p99", "a, max", "a, checkpoint", "bare device, max", "seconds", "us"] {
        assert!(texts(&svg).contains(&text), "{text} in {:?}", texts(&svg));
    }
    // Three lines for each of three runs, three of the checkpoint of one run, and those of the legend.
    assert_eq!(svg.matches("<polyline ").count(), 3 * 3 + 3 + 4);
    // The checkpoint ended in the second of five seconds, and took 0.8 s.
    let (left, right) = (values(&svg, "line", "x1")[0], values(&svg, "line", "x2")[0]);
    let at = |seconds: f64| left + (seconds / 5.0 * f64::from(right - left)).round() as i32;
    let along = svg.lines().find(|line| line.contains("stroke-width=\"4\"")).expect("the time that it took");
    let (from, to) = (format!("points=\"{},", at(0.7)), format!(" {},", at(1.5)));
    assert!(along.contains(&from) && along.contains(&to), "{along}: {from} {to}");
    report.rows.push(row("b", 8, vec![run(1, 100)]));
    assert!(texts(&plot(&report, &spec)).contains(&"b (n/a)"), "it has no seconds");
}

#[test]
fn the_log_above_the_checkpoint_is_known_over_time() {
    let mut report = sample();
    report.rows = vec![row("a", 8, vec![paced(1, 100)])];
    let svg = plot(&report, &PlotSpec { x: X::Time, y: "log_above_checkpoint_mib", ..SPEC });
    assert_eq!(svg.matches("<polyline ").count(), 1 + 1, "the line and that of the legend");
    assert!(texts(&svg).contains(&"log above checkpoint MiB"));
}

#[test]
fn a_report_without_figures_is_an_empty_picture() {
    let mut report = sample();
    report.rows.clear();
    for (x, kind) in [
        (X::Threads, Kind::Lines),
        (X::DataPoints, Kind::Bars),
        (X::Time, Kind::Lines),
        (X::Time, Kind::Tails),
    ] {
        let svg = plot(&report, &PlotSpec { x, kind, ..SPEC });
        assert_eq!(texts(&svg)[0], "Durable &lt;inserts&gt;");
    }
}

#[test]
fn a_line_stops_where_a_value_is_missing() {
    let mut report = sample();
    report.rows = [1, 2, 4, 8, 16].map(|threads| row("a", threads, rounds(100))).to_vec();
    let lines = |report: &Report| {
        let svg = plot(report, &PlotSpec { kind: Kind::Lines, ..SPEC });
        svg.matches("<polyline ").count()
    };
    assert_eq!(lines(&report), 1 + 1, "the line and that of the legend");
    report.rows[2].runs.clear();
    assert_eq!(lines(&report), 2 + 1);
}
