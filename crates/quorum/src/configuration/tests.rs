use std::slice::from_ref;

use proptest::prelude::*;

use super::*;

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn of(ids: impl IntoIterator<Item = u64>) -> Configuration {
    Configuration::new(ids.into_iter().map(node)).expect("distinct ids")
}

fn texts(addresses: &[Address]) -> Vec<&str> {
    addresses.iter().map(Address::as_str).collect()
}

fn ids(configuration: &Configuration) -> Vec<u64> {
    configuration.nodes().map(NodeId::get).collect()
}

#[test]
fn members_are_in_the_order_of_their_ids_however_they_were_given() {
    let configuration = of([30, 10, 20]);
    assert_eq!(ids(&configuration), [10, 20, 30]);
    assert_eq!(configuration.index_of(node(20)), Some(1));
    assert_eq!(configuration.index_of(node(40)), None);
}

#[test]
fn an_empty_set_is_no_configuration() {
    let none: [NodeId; 0] = [];
    assert_eq!(Configuration::new(none), Err(ConfigurationError::Empty));
}

#[test]
fn an_id_that_comes_twice_is_refused() {
    let duplicate = Configuration::new([1, 2, 1].map(node));
    assert_eq!(duplicate, Err(ConfigurationError::DuplicateNode { node: node(1) }));
}

#[test]
fn an_address_that_comes_twice_is_refused_however_it_is_written() {
    let same = [
        ("tcp://127.0.0.1:7000", "tcp://127.0.0.1:7000"),
        ("tcp://localhost:7000", "tcp://127.0.0.1:7000"),
        ("tcp://LOCALHOST:7000", "tcp://localhost:7000"),
        ("tcp://[::1]:7000", "tcp://[0:0:0:0:0:0:0:1]:7000"),
        ("tcp://Replica.Example:7000", "TCP://replica.example:7000"),
        ("sim://a", "sim://a"),
    ];
    for (first, second) in same {
        let error = Configuration::new([(1, first), (2, second)]).expect_err("one address for two");
        assert!(matches!(error, ConfigurationError::DuplicateAddress { .. }), "{error}");
    }
}

#[test]
fn different_addresses_are_taken() {
    let places =
        ["tcp://127.0.0.1:7000", "tcp://127.0.0.1:7001", "tls://127.0.0.1:7000", "sim://a"];
    let configuration = Configuration::new((1_u64..).zip(places)).expect("four places");
    assert_eq!(texts(configuration.addresses_of(node(4))), ["sim://a"]);
}

#[test]
fn a_member_may_have_several_addresses() {
    let both = ["tcp://localhost:7000", "tcp://127.0.0.1:7000", "unix:///run/a.sock"];
    let configuration = Configuration::new([(1, &both[..]), (2, &["tcp://b:7000"][..])]).unwrap();
    assert_eq!(texts(configuration.addresses_of(node(1))), both);
    let clash = [(1, &both[..]), (2, &["tcp://b:7000", "tcp://LOCALHOST:7000"][..])];
    let error = Configuration::new(clash).expect_err("node 1 is there");
    assert!(error.to_string().contains("n1 and n2"), "{error}");
}

#[test]
fn members_have_every_form() {
    let all = of([1, 2]);
    let peers = [1, 2].map(|id| Peer::from(node(id)));
    let addresses = ["tcp://a:7000".to_owned(), "tcp://b:7000".to_owned()];
    let address: Address = "tcp://a:7000".parse().unwrap();
    let forms = [
        Configuration::new([node(1), node(2)]),
        Configuration::new([node(1), node(2)].iter()),
        Configuration::new(peers),
        Configuration::new(peers.iter()),
        Configuration::new(&all),
    ];
    for form in forms {
        assert_eq!(form.as_ref(), Ok(&all));
    }
    let addressed = [
        Configuration::new([(1, "tcp://a:7000"), (2, "tcp://b:7000")]),
        Configuration::new([(node(1), "tcp://a:7000"), (node(2), "tcp://b:7000")]),
        Configuration::new((1_u64..).zip(&addresses)),
        Configuration::new([
            (1, vec![address.clone()]),
            (2, vec!["tcp://b:7000".parse().unwrap()]),
        ]),
        Configuration::new(
            [(1, "tcp://a:7000"), (2, "tcp://b:7000")].map(|of| of.to_member().unwrap()),
        ),
    ];
    for form in &addressed {
        assert_eq!(form, &addressed[0]);
        assert_eq!(form.as_ref().unwrap().addresses_of(node(1)), from_ref(&address));
    }
    assert_eq!(Configuration::new([(0, "tcp://a:7000")]), Err(ConfigurationError::NoNode));
    let error = Configuration::new([(1, "a:7000")]).expect_err("it has no scheme");
    assert!(matches!(error, ConfigurationError::Address(_)), "{error}");
}

#[test]
fn more_members_than_there_are_indices_are_refused() {
    let count = Configuration::MEMBERS_MAX as u64;
    assert_eq!(of(1..=count).index_of(node(count)), Some(u16::MAX - 1));
    let error = Configuration::new((1..=count + 1).map(node)).expect_err("one too many");
    assert_eq!(error, ConfigurationError::TooManyMembers { count: Configuration::MEMBERS_MAX + 1 });
}

#[test]
fn an_epoch_is_that_of_every_member_and_of_what_is_made_of_them() {
    let (old, new) = (of([1, 2, 3]).with_epoch(4), of([3, 4]).with_epoch(5));
    assert!(old.members().iter().all(|member| member.epoch() == 4));
    assert_eq!(old.without([node(1)]).epoch(), 4);
    let both = old.union(&new);
    assert_eq!(both.epoch(), 5);
    assert!(both.members().iter().all(|member| member.epoch() == 5));
}

#[test]
fn addresses_stay_with_their_members() {
    let configuration = Configuration::new([1, 2].map(|id| (id, format!("sim://{id}")))).unwrap();
    let rest = configuration.without([node(1)]).union(&of([3]));
    assert!(rest.addresses_of(node(1)).is_empty());
    assert_eq!(texts(rest.addresses_of(node(2))), ["sim://2"]);
}

#[test]
fn what_no_failure_concerns_stays_the_same_set_and_results_leave_their_sources_alone() {
    let all = of([1, 2, 3]);
    let same = all.without([node(9)]);
    assert!(Arc::ptr_eq(&all.set, &same.set));
    let fewer = all.without([node(2)]);
    assert_eq!((ids(&fewer), ids(&all)), (vec![1, 3], vec![1, 2, 3]));
    let nobody = all.without(all.nodes());
    assert!(nobody.is_empty() && nobody.members().is_empty() && nobody.union(&all) == all);
}

fn sets() -> impl Strategy<Value = (Configuration, Configuration)> {
    let set = || prop::collection::btree_set(1u64..30, 1..20).prop_map(of);
    (set(), set())
}

proptest! {
    #[test]
    fn set_algebra_is_that_of_sets((a, b) in sets()) {
        let (union, both, rest) = (a.union(&b), a.intersection(&b), a.difference(&b));
        for id in 1..30 {
            let (in_a, in_b) = (a.contains(node(id)), b.contains(node(id)));
            prop_assert_eq!(union.contains(node(id)), in_a || in_b);
            prop_assert_eq!(both.contains(node(id)), in_a && in_b);
            prop_assert_eq!(rest.contains(node(id)), in_a && !in_b);
        }
        prop_assert_eq!(union.len() + both.len(), a.len() + b.len());
        prop_assert_eq!(&both.union(&rest), &a);
        prop_assert_eq!(a.without(b.nodes()), rest);
    }

    #[test]
    fn the_index_of_each_member_is_its_place((a, b) in sets()) {
        let union = a.union(&b);
        for (index, member) in union.members().iter().enumerate() {
            prop_assert_eq!(union.index_of(member.node()).map(usize::from), Some(index));
        }
    }
}
