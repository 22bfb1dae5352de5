//! The B+tree against models, damage, threads and its own golden bytes.

mod accounts;
mod bulk;
mod damage;
mod evicting;
mod evicting_threads;
mod golden;
mod leaving;
mod loads;
mod model;
mod moving;
mod support;
mod threads;
mod write_out;
