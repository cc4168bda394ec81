//! What an operator does with `limitctl`, done with the binary itself while real traffic is on.

mod attaching;
mod buckets;
mod identities;
mod interfaces;
mod lists;
mod stops;
mod tcp;
mod traffic;
mod tuning;
mod world;
