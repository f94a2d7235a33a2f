//! Keys as arrays of columns.

use agent_platform::records::Key;

use crate::postgres::param::Param;

/// Column arrays of keys.
#[derive(Default)]
pub(super) struct KeyColumns<'k> {
    pub(super) companies: Vec<&'k str>,
    pub(super) paths: Vec<&'k str>,
    pub(super) ids: Vec<&'k str>,
}

impl<'k> KeyColumns<'k> {
    pub(super) fn of(keys: impl Iterator<Item = &'k Key>) -> Self {
        let mut columns = Self::default();
        keys.for_each(|key| columns.push(key));
        columns
    }

    pub(super) fn push(&mut self, key: &'k Key) {
        self.companies.push(key.company());
        self.paths.push(key.collection().path());
        self.ids.push(key.id());
    }

    pub(super) fn values(&self) -> [&(dyn Param + Sync); 3] {
        [&self.companies, &self.paths, &self.ids]
    }
}
