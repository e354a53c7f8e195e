//! The file that describes a network. Every error names the field and says what it may be.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use convoke_overlay::{
    Cost, Fairness, Family, HoseModel, PlanOptions, RATE_MAX_KBIT, SITES_MAX, Site, SiteSet,
};
use serde_json::{Map, Value};

/// Content of a file.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) names: Vec<String>,
    /// Degrees north and east of each site that says where it is.
    pub(crate) places: Vec<Option<(f64, f64)>>,
    pub(crate) model: HoseModel,
    pub(crate) headroom_permille: u32,
    pub(crate) options: PlanOptions,
}

/// Longest latency that is taken for one, milliseconds.
const LATENCY_MAX_MS: f64 = 60_000.0;

impl Network {
    /// # Errors
    /// If the text is not of the format, or a field is missing, unknown or has no possible value.
    pub(crate) fn parse(text: &str, is_json: bool) -> anyhow::Result<Self> {
        let file: Value = if is_json {
            serde_json::from_str(text).context("it is no JSON")?
        } else {
            toml::from_str(text).context("it is no TOML (JSON must be named .json)")?
        };
        let file = Table::new(String::new(), &file)?;
        file.knows(&["sites", "latency_ms", "options"])?;
        let sites = parse_sites(&file)?;
        let names: Vec<String> = sites.iter().map(|site| site.name.clone()).collect();
        let places = sites.iter().map(|site| site.place).collect();
        let of = |rate: fn(&SiteEntry) -> u64| sites.iter().map(rate).collect();
        let model = HoseModel {
            uplink: of(|site| site.uplink),
            downlink: of(|site| site.downlink),
            demand: of(|site| site.demand),
            latency_us: parse_latencies(&file, &names)?,
            epoch: 0,
        };
        let (headroom_permille, options) = parse_options(&file, &names)?;
        Ok(Self { names, places, model, headroom_permille, options })
    }
}

struct SiteEntry {
    name: String,
    place: Option<(f64, f64)>,
    uplink: u64,
    downlink: u64,
    demand: u64,
}

fn parse_sites(file: &Table<'_>) -> anyhow::Result<Vec<SiteEntry>> {
    let entries = file.required("sites", "a list of sites")?;
    let entries = entries.as_array().context("sites is no list: give each site as [[sites]]")?;
    ensure!(
        (1..=SITES_MAX).contains(&entries.len()),
        "sites has {} entries: give 1 to {SITES_MAX}",
        entries.len()
    );
    let mut sites: Vec<SiteEntry> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let table = Table::new(format!("sites[{index}]"), entry)?;
        let site = parse_site(&table)?;
        let is_new = sites.iter().all(|other| other.name != site.name);
        ensure!(is_new, "{} is {:?} again: give each site its own", table.at("name"), site.name);
        sites.push(site);
    }
    Ok(sites)
}

fn parse_site(table: &Table<'_>) -> anyhow::Result<SiteEntry> {
    table.knows(&[
        "name",
        "uplink_mbit",
        "downlink_mbit",
        "demand_mbit",
        "latitude",
        "longitude",
    ])?;
    let name = table.required("name", "the name of the site")?;
    let name = name.as_str().filter(|name| !name.is_empty());
    let name = name.with_context(|| format!("{} is no name", table.at("name")))?.to_owned();
    let site = SiteEntry {
        name,
        place: parse_place(table)?,
        uplink: table.rate("uplink_mbit")?,
        downlink: table.rate("downlink_mbit")?,
        demand: table.rate("demand_mbit")?,
    };
    ensure!(
        site.uplink > 0 || site.demand == 0,
        "{} is 0, but {} is not: a site that wants to send needs an uplink",
        table.at("uplink_mbit"),
        table.at("demand_mbit")
    );
    ensure!(
        site.downlink > 0,
        "{} is 0: nobody could broadcast, as this site receives nothing; leave the site out",
        table.at("downlink_mbit")
    );
    Ok(site)
}

/// Degrees north and east, for pictures: both or neither.
fn parse_place(table: &Table<'_>) -> anyhow::Result<Option<(f64, f64)>> {
    match (table.degrees("latitude", 90.0)?, table.degrees("longitude", 180.0)?) {
        (Some(latitude), Some(longitude)) => Ok(Some((latitude, longitude))),
        (None, None) => Ok(None),
        (one, _) => {
            let missing = if one.is_some() { "longitude" } else { "latitude" };
            bail!("{} is missing: give both degrees of a place, or neither", table.at(missing))
        }
    }
}

/// `latency_ms.A.B` is from A to B, and from B to A where that is not given.
fn parse_latencies(file: &Table<'_>, names: &[String]) -> anyhow::Result<Vec<u32>> {
    let mut given = BTreeMap::new();
    if let Some(latencies) = file.map.get("latency_ms") {
        let latencies = Table::new("latency_ms".to_owned(), latencies)?;
        for (from, row) in latencies.map {
            let from_site = site(&latencies, from, names)?;
            let row = Table::new(latencies.at(from), row)?;
            for to in row.map.keys() {
                let to_site = site(&row, to, names)?;
                let us = row.number(to, LATENCY_MAX_MS, "ms")? * 1000.0;
                ensure!(from_site != to_site || us == 0.0, "{} is not 0", row.at(to));
                #[expect(clippy::cast_possible_truncation, reason = "at most a minute")]
                #[expect(clippy::cast_sign_loss, reason = "checked not to be negative")]
                given.insert((from_site, to_site), us.round() as u32);
            }
        }
    }
    let mut all = Vec::with_capacity(names.len() * names.len());
    for from in 0..names.len() {
        for to in 0..names.len() {
            let latency = given.get(&(from, to)).or_else(|| given.get(&(to, from)));
            let latency = latency.copied().or((from == to).then_some(0));
            all.push(latency.with_context(|| {
                format!("latency_ms.{}.{} is missing: give it in ms", names[from], names[to])
            })?);
        }
    }
    Ok(all)
}

fn parse_options(file: &Table<'_>, names: &[String]) -> anyhow::Result<(u32, PlanOptions)> {
    let none = Value::Object(Map::new());
    let table = Table::new("options".to_owned(), file.map.get("options").unwrap_or(&none))?;
    table.knows(&[
        "headroom_permille",
        "max_relay_share_permille",
        "excluded",
        "trees",
        "cost",
        "fairness",
    ])?;
    let headroom = table.permille("headroom_permille", PlanOptions::HEADROOM_PERMILLE)?;
    let mut options = PlanOptions::new()
        .headroom_permille(headroom)
        .max_relay_share_permille(table.permille("max_relay_share_permille", 1000)?)
        .excluded(parse_excluded(&table, names)?);
    options = match table.text("trees")? {
        None | Some("base") => options.family(Family::Base),
        Some("one-relay") => options.family(Family::OneRelay),
        Some(other) => bail!("options.trees is {other:?}: give \"base\" or \"one-relay\""),
    };
    options = match table.text("cost")? {
        None | Some("sum") => options.cost(Cost::Sum),
        Some("max") => options.cost(Cost::Max),
        Some(other) => match other.strip_prefix("quorum:").map(str::parse) {
            Some(Ok(count)) => options.cost(Cost::Quorum(count)),
            _ => bail!("options.cost is {other:?}: give \"sum\", \"max\" or \"quorum:3\""),
        },
    };
    options = match table.text("fairness")? {
        None | Some("max-min") => options.admit(Some(Fairness::MaxMin)),
        Some("proportional") => options.admit(Some(Fairness::Proportional)),
        Some("refuse") => options.admit(None),
        Some(other) => {
            bail!("options.fairness is {other:?}: give \"max-min\", \"proportional\" or \"refuse\"")
        }
    };
    Ok((headroom, options))
}

fn parse_excluded(table: &Table<'_>, names: &[String]) -> anyhow::Result<SiteSet> {
    let Some(excluded) = table.map.get("excluded") else {
        return Ok(SiteSet::EMPTY);
    };
    let none = || format!("{} is no list of names of sites", table.at("excluded"));
    let excluded = excluded.as_array().with_context(none)?.iter().map(|name| {
        let index = site(table, name.as_str().with_context(none)?, names)?;
        Ok(Site(u16::try_from(index)?))
    });
    excluded.collect()
}

fn site(table: &Table<'_>, name: &str, names: &[String]) -> anyhow::Result<usize> {
    let index = names.iter().position(|known| known == name);
    index.with_context(|| format!("{} names {name:?}, which is no site", table.path))
}

/// A table of the file, and where it is.
struct Table<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Table<'a> {
    fn new(path: String, value: &'a Value) -> anyhow::Result<Self> {
        let name = if path.is_empty() { "the file" } else { &path };
        let map = value.as_object().with_context(|| format!("{name} is no table"))?;
        Ok(Self { path, map })
    }

    fn at(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// Fails on other fields: a name with a mistake in it is not silently nothing.
    fn knows(&self, fields: &[&str]) -> anyhow::Result<()> {
        let unknown = self.map.keys().find(|key| !fields.contains(&key.as_str()));
        unknown.map_or(Ok(()), |key| {
            bail!("{} is unknown: there are {}", self.at(key), fields.join(", "))
        })
    }

    fn required(&self, field: &str, what: &str) -> anyhow::Result<&'a Value> {
        let value = self.map.get(field);
        value.with_context(|| format!("{} is missing: give {what}", self.at(field)))
    }

    fn text(&self, field: &str) -> anyhow::Result<Option<&'a str>> {
        let Some(value) = self.map.get(field) else {
            return Ok(None);
        };
        let text = value.as_str().with_context(|| format!("{} is no text", self.at(field)))?;
        Ok(Some(text))
    }

    /// A number from 0 to `most`.
    fn number(&self, field: &str, most: f64, unit: &str) -> anyhow::Result<f64> {
        let value = self.required(field, &format!("a number of {unit}"))?;
        let number = value.as_f64().filter(|number| (0.0..=most).contains(number));
        number.with_context(|| {
            format!("{} is {value}: give a number of {unit} from 0 to {most}", self.at(field))
        })
    }

    /// Degrees to both sides of 0.
    fn degrees(&self, field: &str, most: f64) -> anyhow::Result<Option<f64>> {
        let Some(value) = self.map.get(field) else {
            return Ok(None);
        };
        let degrees = value.as_f64().filter(|degrees| (-most..=most).contains(degrees));
        let refused =
            || format!("{} is {value}: give degrees from -{most} to {most}", self.at(field));
        degrees.with_context(refused).map(Some)
    }

    /// Mbit/s of the file as kbit/s.
    fn rate(&self, field: &str) -> anyhow::Result<u64> {
        let most = RATE_MAX_KBIT / 1000;
        let kbit = self.number(field, most as f64, "Mbit/s")? * 1000.0;
        ensure!(kbit == 0.0 || kbit >= 1.0, "{} is less than 0.001 Mbit/s", self.at(field));
        #[expect(clippy::cast_possible_truncation, reason = "at most RATE_MAX_KBIT")]
        #[expect(clippy::cast_sign_loss, reason = "checked not to be negative")]
        Ok(kbit.round() as u64)
    }

    fn permille(&self, field: &str, default: u32) -> anyhow::Result<u32> {
        let Some(value) = self.map.get(field) else {
            return Ok(default);
        };
        let permille = value.as_u64().and_then(|number| u32::try_from(number).ok());
        permille
            .filter(|permille| (1..=1000).contains(permille))
            .with_context(|| format!("{} is {value}: give 1 to 1000", self.at(field)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"
        sites = [
            { name = "a", uplink_mbit = 10, downlink_mbit = 20.5, demand_mbit = 3 },
            { name = "b", uplink_mbit = 10, downlink_mbit = 20, demand_mbit = 0 },
        ]
        latency_ms.a.b = 1.5
        [options]
        headroom_permille = 900
        excluded = ["b"]
    "#;

    #[test]
    fn toml_and_json_say_the_same() {
        let toml = Network::parse(TWO, false).expect("a network");
        assert_eq!(toml.names, ["a", "b"]);
        assert_eq!(toml.model.uplink, [10_000, 10_000]);
        assert_eq!(toml.model.downlink, [20_500, 20_000]);
        assert_eq!(toml.model.demand, [3_000, 0]);
        assert_eq!(toml.model.latency_us, [0, 1500, 1500, 0]);
        assert_eq!(toml.headroom_permille, 900);
        let value: Value = toml::from_str(TWO).expect("TOML");
        let json = Network::parse(&value.to_string(), true).expect("a network");
        assert_eq!(json.model, toml.model);
        assert_eq!(format!("{:?}", json.options), format!("{:?}", toml.options));
    }

    #[test]
    fn every_error_names_the_field() {
        let wrong = |right: &str, wrong: &str| {
            assert!(TWO.contains(right), "{right}");
            let parsed = Network::parse(&TWO.replacen(right, wrong, 1), false);
            format!("{:#}", parsed.expect_err(wrong))
        };
        let cases = [
            ("uplink_mbit = 10", "uplink_mbit = -1", "sites[0].uplink_mbit is -1"),
            ("uplink_mbit = 10", "uplink_mbit = \"fast\"", "sites[0].uplink_mbit is \"fast\""),
            ("uplink_mbit = 10", "uplink_mbit = nan", "sites[0].uplink_mbit is null"),
            ("uplink_mbit = 10", "uplink_mbit = 1e30", "sites[0].uplink_mbit is 1e+30"),
            ("uplink_mbit = 10", "uplink_mbit = 0", "sites[0].uplink_mbit is 0, but"),
            ("uplink_mbit = 10,", "", "sites[0].uplink_mbit is missing"),
            ("uplink_mbit", "uplink_gbit", "sites[0].uplink_gbit is unknown"),
            ("downlink_mbit = 20.5", "downlink_mbit = 0", "sites[0].downlink_mbit is 0"),
            ("demand_mbit = 3", "demand_mbit = 0.0001", "sites[0].demand_mbit is less than"),
            ("name = \"b\"", "name = \"a\"", "sites[1].name is \"a\" again"),
            (
                "name = \"a\"",
                "name = \"a\", latitude = 91, longitude = 0",
                "sites[0].latitude is 91",
            ),
            ("name = \"a\"", "name = \"a\", latitude = 9", "sites[0].longitude is missing"),
            ("name = \"a\"", "name = \"a\", longitude = 9", "sites[0].latitude is missing"),
            ("name = \"b\"", "name = 7", "sites[1].name is no name"),
            ("latency_ms.a.b = 1.5", "", "latency_ms.a.b is missing"),
            ("latency_ms.a.b = 1.5", "latency_ms.a.c = 1", "latency_ms.a names \"c\""),
            ("latency_ms.a.b = 1.5", "latency_ms.a.b = -3", "latency_ms.a.b is -3"),
            ("latency_ms.a.b = 1.5", "latency_ms.a.a = 1", "latency_ms.a.a is not 0"),
            ("headroom_permille = 900", "headroom_permille = 0", "options.headroom_permille is 0"),
            ("headroom_permille = 900", "trees = \"tall\"", "options.trees is \"tall\""),
            ("headroom_permille = 900", "cost = \"quorum:x\"", "options.cost is \"quorum:x\""),
            ("headroom_permille = 900", "fairness = \"none\"", "options.fairness is \"none\""),
            ("headroom_permille = 900", "colour = 1", "options.colour is unknown"),
            ("excluded = [\"b\"]", "excluded = [\"z\"]", "options names \"z\""),
            ("excluded = [\"b\"]", "excluded = 3", "options.excluded is no list"),
        ];
        for (from, to, expected) in cases {
            let error = wrong(from, to);
            assert!(error.contains(expected), "{error} / {expected}");
        }
        assert!(Network::parse("sites = []", false).is_err());
        assert!(Network::parse("sites = 3", false).is_err());
        assert!(Network::parse("[]", true).is_err());
        assert!(Network::parse("{", true).is_err());
    }
}
