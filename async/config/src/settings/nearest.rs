//! Suggestions for misspelt names.

/// The known name with the smallest edit distance (insertions, deletions, replacements); none if no name is
/// near.
pub(super) fn nearest(name: &str, known: impl IntoIterator<Item = String>) -> Option<String> {
    // Up to a third of a name may be wrong. Names of very different length are not compared, so that the
    // known names bound the work.
    let most = (name.len() / 3).max(2);
    let close = known.into_iter().filter(|known| known.len().abs_diff(name.len()) <= most);
    let (distance, found) = close.map(|known| (distance(name, &known), known)).min()?;
    (distance <= most).then_some(found)
}

/// The suggestion that follows the allowed models, if a name is near to one of them.
pub(super) fn model_meant(key: &str, value: &str) -> String {
    let known = || kvstrata_core::layout::Model::ALL.iter().map(|model| model.name.to_owned());
    let meant = if key == "model" { nearest(&value.to_ascii_lowercase(), known()) } else { None };
    meant.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_is_found_and_a_far_one_is_not() {
        let known = || ["device.blocks", "disk.blocks", "host.bytes"].map(str::to_owned);
        assert_eq!(nearest("devise.block", known()).as_deref(), Some("device.blocks"));
        assert_eq!(nearest("disc.blocks", known()).as_deref(), Some("disk.blocks"));
        assert_eq!(nearest("something", known()), None);
        assert_eq!(model_meant("model", "Qwen3-32"), "; did you mean qwen3-32b?");
        assert_eq!(
            (model_meant("model", "gpt-2"), model_meant("policy", "qwen3-32")),
            (String::new(), String::new())
        );
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "ab"), 2);
    }
}
