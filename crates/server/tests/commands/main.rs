//! A server in this process and clients that talk to it, one file for each subject.

#[path = "../support/mod.rs"]
mod support;

mod administration;
mod conversations;
mod databases;
mod dispatch;
mod durability;
mod lists;
mod long_arrays;
mod long_stores;
mod long_strings;
mod long_values;
mod model;
mod overload;
mod pipelines;
mod sets;
mod transactions;
mod zsets;
