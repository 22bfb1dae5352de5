//! The program as its users run it, one file for each subject.

#[path = "../common/mod.rs"]
mod common;

mod backups;
mod commands;
mod damage;
mod failures;
mod formats;
mod help;
mod loads;
mod probe;
mod read_only;
mod serve;
mod terminals;
