//! `list`: the engines, figures and workloads of the program.

use std::fmt::Write;

use super::{Failure, Program, output};
use crate::engine::{Level, Needs};
use crate::figures::figures;
use crate::registry::FULGURITE_OPTIONS;

pub(super) fn print(program: &Program) -> Result<(), Failure> {
    let mut text = String::from("ENGINES\n");
    for name in program.registry.names() {
        let engine = program.registry.find(name, false).map_err(Failure::new)?;
        let about = match engine.cannot(Needs::default(), Level::Sync) {
            Some(why) => format!("not available: {why}"),
            None => format!("{}; isolation: {}", engine.about(), engine.isolation()),
        };
        writeln!(text, "  {name:<14} {about}").expect("strings take all");
    }
    writeln!(text, "  {:<14} with options: {FULGURITE_OPTIONS}", "fulgurite:...").expect("strings take all");
    text += "\nFIGURES AND TABLES\n";
    for figure in figures() {
        let names =
            std::iter::once(&figure.name).chain(figure.aliases).copied().collect::<Vec<_>>().join(", ");
        writeln!(text, "  {names}\n      {}", figure.title).expect("strings take all");
    }
    text += "\nWORKLOADS have a help of their own: see --help.\n";
    output::print(&text)
}
