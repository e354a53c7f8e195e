//! Links and headings of a page of Markdown.

use std::collections::BTreeMap;

/// A link or a picture of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Line of its target, counted from 1.
    pub(crate) line: usize,
    /// The page and the anchor, as written: `page.md#anchor`, either of them or both.
    pub(crate) target: String,
}

/// Links of a page in their order, without those in code.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (line, prose) in prose(text) {
        for after in prose.split("](").skip(1) {
            let target = after.split([')', ' ']).next().unwrap_or_default().to_owned();
            links.push(Link { line, target });
        }
    }
    links
}

/// Title of a page: its first heading.
pub(crate) fn title(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("# "))
}

/// Anchors of the headings of a page, as GitHub and mdBook name them.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let heading = |line: &str| {
        let text = line.trim_start_matches('#');
        (text != line && text.starts_with(' ')).then(|| slug(text.trim()))
    };
    let slugs: Vec<String> = uncoded(text).filter_map(|(_, line)| heading(line)).collect();
    let numbered = slugs.into_iter().map(|slug| {
        let count: &mut usize = seen.entry(slug.clone()).or_default();
        *count += 1;
        if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
    });
    numbered.collect()
}

/// The page with each link that leads out of its folder as the text of that link.
pub(crate) fn without_links_out(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once("](../") {
        let opened = before.rfind('[').unwrap_or(before.len());
        kept += &before[..opened];
        kept += before.get(opened + 1..).unwrap_or_default();
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    kept + rest
}

fn slug(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Lines outside blocks of code, with their numbers.
fn uncoded(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The same lines without the code in them.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    uncoded(text).map(|(number, line)| (number, line.split('`').step_by(2).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page: `x` & more\n\nSee [`a`](a.md), `v[0](1)` and\n![b](b.svg).\n\n\
        ```sh\n# no heading [c](c.md)\n```\n## Twice\n## Twice\n#no heading\n";

    #[test]
    fn links_and_pictures_are_found_outside_code() {
        let found = links(PAGE);
        let expected = [(3, "a.md"), (4, "b.svg")];
        let expected = expected.map(|(line, target)| Link { line, target: target.into() });
        assert_eq!(found, expected);
        assert_eq!(links("[a](b.md#c \"d\")")[0].target, "b.md#c");
    }

    #[test]
    fn headings_have_a_title_and_anchors() {
        assert_eq!(title(PAGE), Some("A page: `x` & more"));
        assert_eq!(anchors(PAGE), ["a-page-x--more", "twice", "twice-1"]);
    }

    #[test]
    fn links_out_of_the_folder_become_their_text() {
        let page = "[in](b.md), [`out`](../x.rs)\nand [two\nlines](../y#z). An end";
        let expected = "[in](b.md), `out`\nand two\nlines. An end";
        assert_eq!(without_links_out(page), expected);
        assert_eq!(without_links_out("no text](../x"), "no text");
    }
}
