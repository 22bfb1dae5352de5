//! Isolation and concurrency of whole databases, with threads stopped where it matters.

mod anomalies;
mod attempts;
mod callbacks;
mod checker;
mod closing;
mod counters;
mod deferred;
mod definitions;
mod dependent_reads;
mod durability;
mod increments;
mod leases;
mod levels;
mod limits;
mod merging;
mod own_writes;
mod queues;
mod ranges;
mod reads;
mod slowed;
mod steps;
mod stress;
mod support;
mod unwinding;
mod validation;
mod watches;
