//! What XDP sends back itself; tail-called, so that the hot program stays small.

pub(crate) mod reset;
