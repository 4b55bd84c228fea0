//! The HTML report of `dflash sim`, read as a browser would: tags that match, nothing from outside, ids that are unique.

use super::desk::{COMPOSED, Desk};
use std::collections::BTreeSet;

fn page() -> String {
    let desk = Desk::with(&format!(
        "{COMPOSED}depth_total = [4, 6, 8]\n\n[[policy]]\npreset = \"bucketed\"\ntargets = 2\ndrafters = 2\n"
    ));
    desk.run("sim s.toml --out out").exits(0);
    desk.read("out/report.html")
}

/// Tags of a page with their attributes; the insides of script and style are left out.
fn tags(page: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        tags.push(tag);
        rest = &rest[end + 1..];
        for raw in ["script", "style"] {
            if tag == raw {
                rest = &rest[rest.find(&format!("</{raw}>")).expect("it ends")..];
            }
        }
    }
    tags
}

/// The inside of the only element of this name.
fn inside<'a>(page: &'a str, element: &str) -> &'a str {
    assert_eq!(
        page.matches(&format!("<{element}>")).count(),
        1,
        "{element}"
    );
    let (_, rest) = page.split_once(&format!("<{element}>")).unwrap();
    rest.split_once(&format!("</{element}>")).unwrap().0
}

#[test]
fn every_tag_is_closed_by_its_own() {
    let page = page();
    let mut open = Vec::new();
    for tag in tags(&page) {
        let name = tag.split([' ', '\n', '/']).find(|part| !part.is_empty());
        let name = name.expect("a tag has a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.starts_with('!') && !tag.ends_with('/') && !["meta", "link"].contains(&name)
        {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn nothing_is_loaded_and_no_id_is_used_twice() {
    let page = page();
    let mut ids = BTreeSet::new();
    for tag in tags(&page) {
        for attribute in ["src=", "srcset=", "action=", "data=", "url("] {
            assert!(!tag.contains(attribute), "{tag}");
        }
        if tag.contains("href=") {
            assert_eq!(tag, "link rel=\"icon\" href=\"data:,\"");
        }
        if let Some((_, id)) = tag.split_once(" id=\"") {
            assert!(ids.insert(id.split('"').next()), "{tag}");
        }
    }
    assert!(page.contains("Content-Security-Policy\" content=\"default-src 'none';"));
    let style = inside(&page, "style");
    assert!(!style.contains("url(") && !style.contains("@import"));
    let script = inside(&page, "script");
    for way in ["fetch", "XMLHttp", "import", "http", "WebSocket", "eval"] {
        assert!(!script.contains(way), "{way}");
    }
}

#[test]
fn figures_have_colours_for_the_dark_scheme() {
    let page = page();
    let style = inside(&page, "style");
    let dark = "@media screen and (prefers-color-scheme: dark)";
    let (_, dark) = style.rsplit_once(dark).expect("there are dark rules");
    let used = page.split("fill=\"#").skip(1).map(|rest| &rest[..6]);
    let used: BTreeSet<&str> = used.filter(|hex| !hex.contains(['"', ']'])).collect();
    assert!(used.len() > 5, "{used:?}");
    for hex in used {
        assert!(dark.contains(&format!("figure [fill=\"#{hex}\"]")), "{hex}");
    }
}

#[test]
fn brackets_of_style_and_script_match() {
    let page = page();
    for element in ["style", "script"] {
        let mut open = Vec::new();
        let mut quote = None;
        let text = inside(&page, element);
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        // Brackets inside text and patterns pair up here, too.
        for letter in code.flat_map(str::chars) {
            match (quote, letter) {
                (Some(end), letter) if letter == end => quote = None,
                (Some(_), _) => {}
                (None, '"') => quote = Some(letter),
                (None, '(' | '[' | '{') => open.push(letter),
                (None, ')') => assert_eq!(open.pop(), Some('('), "{element}"),
                (None, ']') => assert_eq!(open.pop(), Some('['), "{element}"),
                (None, '}') => assert_eq!(open.pop(), Some('{'), "{element}"),
                _ => {}
            }
        }
        assert!(open.is_empty() && quote.is_none(), "{element}: {open:?}");
    }
}

#[test]
fn tables_hold_the_answer_and_every_point() {
    let page = page();
    for text in [
        "What a change would do to throughput",
        "one more GPU as a target",
        "All points, by throughput",
        "depth_total = 6",
        "Colocated (a target and a drafter taking turns",
        "The data set of 600 samples",
    ] {
        assert!(page.contains(text), "{text}");
    }
}
