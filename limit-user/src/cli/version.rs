//! `limitctl version`: of the program, and of the layout it shares with the kernel.

use limit_common::layout;
use serde::Serialize;

use super::Context;

/// Prints the version.
///
/// # Errors
///
/// When stdout cannot be written to.
pub fn run(ctx: &Context) -> anyhow::Result<()> {
    let view = VersionView {
        version: env!("CARGO_PKG_VERSION"),
        layout: layout::VERSION,
    };
    ctx.interrupt.finish();
    ctx.output.result(&view, || {
        format!("limitctl {} (layout {})\n", view.version, view.layout)
    })?;
    Ok(())
}

#[derive(Serialize)]
struct VersionView {
    version: &'static str,
    /// Version of the pinned maps.
    layout: u32,
}
