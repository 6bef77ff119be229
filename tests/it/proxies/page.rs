//! The pages in `docs/integrations` as configurations.

use std::path::Path;

/// The blocks of a page, in order, whatever their language.
pub(super) fn blocks(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/integrations/{name}.md"));
    let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    page.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap().1.to_owned()).collect()
}

/// Replaces what must be there exactly once.
pub(super) fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from:?} in the page");
    text.replace(from, to)
}

/// A line for each address in place of the one line that has this one, wherever that line stands.
pub(super) fn line_for_each(text: &str, address: &str, places: usize, addresses: &[String]) -> String {
    assert_eq!(text.matches(address).count(), places, "{address:?} in the page");
    let mut all = String::new();
    for line in text.lines() {
        if line.contains(address) {
            for (nth, to) in addresses.iter().enumerate() {
                let line = line.replace(address, to).replace("replica1", &format!("replica{}", nth + 1));
                all.push_str(&format!("{line}\n"));
            }
        } else {
            all.push_str(&format!("{line}\n"));
        }
    }
    all
}
