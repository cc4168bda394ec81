//! `limitctl` where something was cut off, changes meanwhile, or is in the way.

mod doctor;
mod leftovers;
mod meanwhile;
mod printed;
mod stand;
