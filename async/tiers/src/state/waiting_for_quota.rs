//! Requests that wait for credits of their tenants.

use crate::state::{Entry, GroupId};
use kvstrata_core::TenantId;
use std::collections::VecDeque;
use std::ops::Index;

/// A request, and the blocks that it wants, by group.
#[derive(Debug)]
pub(crate) struct Request {
    parts: Vec<(GroupId, Entry)>,
    /// Entries that bring up blocks for which it waits, too (I3).
    joined: Vec<u64>,
    /// The last look for victims: the entry for which there were too few, and the state then.
    looked: Option<(u64, [u32; 3])>,
}

impl Request {
    /// Returns its entries, by group.
    pub(crate) fn parts(&self) -> &[(GroupId, Entry)] {
        &self.parts
    }

    pub(crate) fn joined(&self) -> &[u64] {
        &self.joined
    }

    pub(crate) fn looked(&self) -> Option<(u64, [u32; 3])> {
        self.looked
    }
}

/// Requests that wait for credits, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct WaitingForQuota(VecDeque<Request>);

impl Index<usize> for WaitingForQuota {
    type Output = Request;

    fn index(&self, at: usize) -> &Request {
        &self.0[at]
    }
}

impl WaitingForQuota {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the request at a place.
    pub(crate) fn get(&self, at: usize) -> Option<&Request> {
        self.0.get(at)
    }

    /// Takes out the request at a place, which has its credits.
    pub(crate) fn remove(&mut self, at: usize) -> impl Iterator<Item = (GroupId, Entry)> {
        self.0.remove(at).into_iter().flat_map(|request| request.parts)
    }

    /// Notes that a look for victims has found too few for an entry of the request at a place, and
    /// the state.
    pub(crate) fn note_look(&mut self, at: usize, entry: u64, state: [u32; 3]) {
        self.0[at].looked = Some((entry, state));
    }

    /// Adds a request that must have credits first.
    pub(crate) fn hold(&mut self, parts: Vec<(GroupId, Entry)>, joined: Vec<u64>) {
        self.0.push_back(Request { parts, joined, looked: None });
    }

    fn entries(&self) -> impl Iterator<Item = &(GroupId, Entry)> {
        self.0.iter().flat_map(|request| &request.parts)
    }

    /// Returns the tenants of the entries.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        self.entries().map(|(_, entry)| entry.tenant())
    }

    /// Returns the number of requests.
    pub(crate) fn requests(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of entries, over all groups.
    pub(crate) fn waiting(&self) -> usize {
        self.entries().count()
    }

    /// Counts the entries for a group that came before an entry.
    pub(crate) fn before(&self, group: GroupId, number: u64) -> usize {
        let earlier = self.entries().take_while(|(_, entry)| entry.number() != number);
        earlier.filter(|(of, _)| *of == group).count()
    }

    /// Whether an entry is here.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.entries().any(|(_, entry)| entry.number() == number)
    }

    /// Whether an entry of a tenant waits for credits of a group.
    pub(crate) fn holds(&self, group: GroupId, tenant: TenantId) -> bool {
        self.entries().any(|(of, entry)| (*of, entry.tenant()) == (group, tenant))
    }

    pub(crate) fn find(&mut self, number: u64) -> Option<&mut Entry> {
        let mut parts = self.0.iter_mut().flat_map(|request| &mut request.parts);
        parts.find(|(_, entry)| entry.number() == number).map(|(_, entry)| entry)
    }

    /// Makes the request of an entry be looked at again: it wants fewer blocks.
    pub(crate) fn look_again(&mut self, number: u64) {
        let of = |request: &&mut Request| request.parts.iter().any(|(_, entry)| entry.number() == number);
        if let Some(request) = self.0.iter_mut().find(of) {
            request.looked = None;
        }
    }

    /// Takes an entry out, and with its last entry the request.
    pub(crate) fn take(&mut self, number: u64) -> Option<Entry> {
        self.take_if(|_, entry| entry.number() == number).pop()
    }

    /// Takes all matching entries out.
    pub(crate) fn take_if(&mut self, which: impl Fn(GroupId, &Entry) -> bool) -> Vec<Entry> {
        let mut taken = Vec::new();
        for request in &mut self.0 {
            taken.extend(request.parts.extract_if(.., |(group, entry)| which(*group, entry)));
        }
        self.0.retain(|request| !request.parts.is_empty());
        taken.into_iter().map(|(_, entry)| entry).collect()
    }
}
