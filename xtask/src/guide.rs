//! The pages of `docs` as a book: its chapters are those that its first page, `README.md`, links.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use crate::markdown::{anchors, links, title};

/// Pages by their path from the root of the repository.
pub(crate) type Pages = BTreeMap<String, String>;

/// First page of the book, from the root.
pub(crate) const INDEX: &str = "docs/README.md";

/// Links of pages that lead nowhere, and pages of `docs` that the book would not have. `exists`
/// says which other paths of the repository there are.
pub(crate) fn complaints(pages: &Pages, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, text) in pages {
        for link in links(text) {
            if let Some(why) = broken(pages, name, &link.target, &exists) {
                complaints.push(format!("{name}:{}: {:?}: {why}", link.line, link.target));
            }
        }
    }
    let chapters: BTreeSet<String> = parts(pages).into_iter().flat_map(|part| part.1).collect();
    for name in pages.keys() {
        let page = name.strip_prefix("docs/").filter(|page| !page.contains('/'));
        if name != INDEX && page.is_some_and(|page| !chapters.contains(page)) {
            complaints.push(format!("{name}: {INDEX} has no link to it, so no book has it"));
        }
    }
    complaints
}

/// `SUMMARY.md` of the book, which mdBook takes its chapters from.
pub(crate) fn summary(pages: &Pages) -> String {
    let mut summary = "# Summary\n\n[Guides](README.md)\n".to_owned();
    for (part, chapters) in parts(pages) {
        let _ = writeln!(summary, "\n# {part}\n");
        for chapter in chapters {
            let title = pages.get(&format!("docs/{chapter}")).and_then(|text| title(text));
            let _ = writeln!(summary, "- [{}]({chapter})", title.unwrap_or(&chapter));
        }
    }
    summary
}

/// Parts of the first page, with the pages that each links. One that several link is of the last.
fn parts(pages: &Pages) -> Vec<(String, Vec<String>)> {
    let index = pages.get(INDEX).map(String::as_str).unwrap_or_default();
    let mut parts: Vec<(String, Vec<String>)> = Vec::new();
    for part in index.split("\n## ").skip(1) {
        let (name, text) = part.split_once('\n').unwrap_or((part, ""));
        let mut chapters: Vec<String> = Vec::new();
        for link in links(text) {
            let page = link.target.split('#').next().unwrap_or_default();
            let is_page = pages.contains_key(&format!("docs/{page}")) && !page.contains('/');
            if is_page && !chapters.iter().any(|chapter| chapter == page) {
                parts.iter_mut().for_each(|part| part.1.retain(|chapter| chapter != page));
                chapters.push(page.to_owned());
            }
        }
        parts.push((name.to_owned(), chapters));
    }
    parts
}

/// Reason why a link of a page leads nowhere.
fn broken(
    pages: &Pages,
    from: &str,
    target: &str,
    exists: impl Fn(&Path) -> bool,
) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(to) = reached(from, path) else {
        return Some("this is outside of the repository");
    };
    match (pages.get(&to), anchor) {
        (Some(_), "") => None,
        (Some(text), _) if anchors(text).iter().any(|one| one == anchor) => None,
        (Some(_), _) => Some("the page has no such heading"),
        (None, "") if exists(Path::new(&to)) => None,
        (None, "") => Some("there is no such file"),
        (None, _) => Some("this is no page with headings"),
    }
}

/// Path from the root that a page links by this path, empty for itself.
fn reached(from: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(from.to_owned());
    }
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut reached: Vec<&str> = folder.split_terminator('/').collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                reached.pop()?;
            }
            name => reached.push(name),
        }
    }
    Some(reached.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(more: &[(&str, &str)]) -> Pages {
        let index = "# Guides\n\n## First\n\n[b](b.md), [a](a.md#x)\n\n## Then\n\n[a](a.md)\n";
        let all = [(INDEX, index), ("docs/a.md", "# A page\n## X\n"), ("docs/b.md", "# B\n")];
        all.iter().chain(more).map(|(name, text)| ((*name).into(), (*text).into())).collect()
    }

    #[test]
    fn a_page_is_a_chapter_once_under_its_title() {
        let expected = "# Summary\n\n[Guides](README.md)\n\n# First\n\n- [B](b.md)\n\n# Then\n\n\
                        - [A page](a.md)\n";
        assert_eq!(summary(&pages(&[])), expected);
        assert_eq!(complaints(&pages(&[]), |_| false), Vec::<String>::new());
    }

    #[test]
    fn a_page_that_is_not_linked_is_told() {
        let pages = pages(&[("docs/c.md", "# C\n"), ("crates/x/README.md", "# X\n")]);
        let expected = ["docs/c.md: docs/README.md has no link to it, so no book has it"];
        assert_eq!(complaints(&pages, |_| false), expected);
    }

    #[test]
    fn links_that_lead_nowhere_are_told_with_their_line() {
        let text = "# Z\n[1](docs/a.md#x) [2](docs/a.md#y)\n[3](docs/d.md) [4](LICENSE)\n\
                    [5](../up) [6](LICENSE#x) [7](#z) [8](https://x.org/#y) [9](./docs/b.md)\n";
        let told = complaints(&pages(&[("README.md", text)]), |path| path == Path::new("LICENSE"));
        let expected = [
            "README.md:2: \"docs/a.md#y\": the page has no such heading",
            "README.md:3: \"docs/d.md\": there is no such file",
            "README.md:4: \"../up\": this is outside of the repository",
            "README.md:4: \"LICENSE#x\": this is no page with headings",
        ];
        assert_eq!(told, expected);
    }
}
