//! The counters of one interface, summed over CPUs.

use std::{fmt, path::Path};

use aya::{
    Ebpf,
    maps::{IterableMap, Map, MapData, PerCpuArray},
};
use limit_common::{
    counters::{ROW_VALUES, ROWS},
    layout::{CounterRow, maps},
};

use super::{
    error::KernelError,
    tables::{expect_entries, shape, take},
};

/// The counters of one interface.
pub struct Counters(PerCpuArray<MapData, CounterRow>);

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").finish_non_exhaustive()
    }
}

impl Counters {
    pub(super) fn from_pin(path: &Path) -> Result<Self, KernelError> {
        let action = || format!("open {}", path.display());
        let data = MapData::from_pin(path).map_err(|error| KernelError::map(action(), error))?;
        let map = Map::from_map_data(data).map_err(|error| KernelError::map(action(), error))?;
        Self::from_map(map)
    }

    pub(super) fn from_object(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        Self::from_map(take(ebpf, maps::COUNTERS)?)
    }

    fn from_map(map: Map) -> Result<Self, KernelError> {
        let counters = PerCpuArray::try_from(map).map_err(|error| shape(maps::COUNTERS, error))?;
        expect_entries(maps::COUNTERS, counters.map(), ROWS as u32)?;
        Ok(Self(counters))
    }

    /// Every row, summed over CPUs.
    pub fn read(&self) -> Result<Box<[CounterRow; ROWS]>, KernelError> {
        let mut rows = Box::new(
            [CounterRow {
                values: [0; ROW_VALUES],
            }; ROWS],
        );
        for (index, row) in (0..).zip(rows.iter_mut()) {
            *row = self.read_row(index)?;
        }
        Ok(rows)
    }

    /// The row at `index`, summed over CPUs.
    pub fn read_row(&self, index: u32) -> Result<CounterRow, KernelError> {
        let by_cpu = self
            .0
            .get(&index, 0)
            .map_err(|error| KernelError::map("read the counters", error))?;
        let mut row = CounterRow {
            values: [0; ROW_VALUES],
        };
        for counted in by_cpu.iter() {
            for (sum, value) in row.values.iter_mut().zip(counted.values) {
                *sum = sum.wrapping_add(value);
            }
        }
        Ok(row)
    }
}
