//! Names of sites in the log: those of their nodes, as metrics and configurations have them. The
//! index of a site is not the number of its node.

use std::sync::Arc;

use convoke_core::NodeId;

use crate::event::Evidence;
use crate::site::{Site, SiteSet};

/// The node of each site.
#[derive(Clone, Debug)]
pub(super) struct Names(Arc<[NodeId]>);

impl Names {
    pub(super) fn new(nodes: Arc<[NodeId]>) -> Self {
        Self(nodes)
    }

    pub(super) fn of(&self, site: Site) -> NodeId {
        self.0[site.index()]
    }

    pub(super) fn of_all(&self, sites: SiteSet) -> Vec<NodeId> {
        sites.iter().map(|site| self.of(site)).collect()
    }

    /// Evidence with the node of who gives it.
    pub(super) fn evidence(&self, evidence: Evidence) -> String {
        match evidence {
            Evidence::Missed { by } => format!("Missed by {}", self.of(by)),
            Evidence::Changed { by } => format!("Changed, says {}", self.of(by)),
            Evidence::Late | Evidence::Slow | Evidence::Told => format!("{evidence:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_have_the_names_of_their_nodes() {
        let names = Names::new([1, 2, 3, 40].map(NodeId::new).into());
        assert_eq!(names.of(Site(2)).to_string(), "n3");
        let relays = SiteSet::EMPTY.with(Site(0)).with(Site(3));
        assert_eq!(format!("{:?}", names.of_all(relays)), "[n1, n40]");
        let said = |evidence| names.evidence(evidence);
        assert_eq!(said(Evidence::Missed { by: Site(1) }), "Missed by n2");
        assert_eq!(said(Evidence::Changed { by: Site(3) }), "Changed, says n40");
        assert_eq!(said(Evidence::Late), "Late");
    }
}
