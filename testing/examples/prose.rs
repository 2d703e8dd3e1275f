//! Compares the project's words with their budgets, `ci/prose.txt`. `ci/steps/prose` runs it.

use kvstrata_testing::named_paths::Tree;
use kvstrata_testing::prose::{Budget, COLUMNS, Figures, budgets, show, size, texts};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

const HELP: &str = "\
Counts the words that make English hard to read, and compares them with ci/prose.txt.

  ci/steps/prose                  fails where a text exceeds its budget
  ci/steps/prose --update         lowers the budgets to today's figures; never raises one
  ci/steps/prose --places TEXT    lists the counted words of a text, for example 'core comments'
";

/// The file of the budgets.
const BUDGETS: &str = "ci/prose.txt";
/// The maximum number of lines of README.md, and of words outside of its tables and code.
const README: (usize, usize) = (120, 900);

/// The most characters of a comment's line, and of a test's name, in any text.
const LONGEST: [(&str, usize); 2] = [(" comments", 110), (" tests", 60)];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tree = Tree::of(&root);
    let all = texts(&root, tree.texts());
    let listed = fs::read_to_string(root.join(BUDGETS)).unwrap_or_default();
    let known = match budgets(&listed) {
        Ok(known) => known,
        Err(error) => return fail(&format!("{BUDGETS}: {error}")),
    };
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => check(&all, &known, &root),
        ["--update"] => {
            fs::write(root.join(BUDGETS), list(&all, &known)).expect("the budgets are written");
            ExitCode::SUCCESS
        }
        ["--places", text] => match all.get(text) {
            Some(figures) => {
                figures.places().iter().for_each(|of| println!("{}: {}: {}", of.at, of.column, of.text));
                ExitCode::SUCCESS
            }
            None => fail(&format!(
                "no text {text:?}; there are: {}",
                all.keys().cloned().collect::<Vec<_>>().join(", ")
            )),
        },
        ["--help" | "-h"] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => fail(HELP),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}

fn check(all: &BTreeMap<String, Figures>, known: &BTreeMap<String, Budget>, root: &Path) -> ExitCode {
    let mut wrong = Vec::new();
    for (text, figures) in all {
        let Some(budget) = known.get(text) else {
            wrong.push(format!("{text}: has no budget; ci/steps/prose --update adds it"));
            continue;
        };
        let longest = figures.of(COLUMNS.len() - 1);
        if let Some((_, most)) = LONGEST.iter().find(|(kind, most)| text.ends_with(kind) && longest > *most) {
            wrong.push(format!("{text}: the longest has {longest} characters, at most {most} are allowed"));
        }
        for (column, most) in budget.iter().enumerate() {
            let now = figures.of(column);
            if now > *most {
                let (now, most, name) = (show(column, now), show(column, *most), COLUMNS[column]);
                wrong.push(format!(
                    "{text}: {name} is {now}, its budget is {most}; see ci/steps/prose --places '{text}'"
                ));
            }
        }
    }
    for text in known.keys().filter(|text| !all.contains_key(*text)) {
        wrong.push(format!(
            "{text}: has a budget in {BUDGETS} and no text; ci/steps/prose --update removes the line"
        ));
    }
    let (lines, words) = size(&fs::read_to_string(root.join("README.md")).expect("the README"));
    if lines > README.0 || words > README.1 {
        wrong.push(format!(
            "README.md: {lines} lines and {words} words; at most {} and {}",
            README.0, README.1
        ));
    }
    println!("README.md: {lines} lines, {words} words; {} texts compared with {BUDGETS}", all.len());
    match wrong.is_empty() {
        true => ExitCode::SUCCESS,
        false => fail(&wrong.join("\n")),
    }
}

/// Lists the budgets of today's texts: no figure is above the listed one.
fn list(all: &BTreeMap<String, Figures>, known: &BTreeMap<String, Budget>) -> String {
    let mut list = String::from(
        "# The most that each text may have: words for 1,000 (testing/src/prose.rs says which), and characters.\n\
         # ci/steps/prose compares; --update lowers the figures. A change never raises one.\n",
    );
    list += &format!("# {:<22}", "text");
    list.extend(COLUMNS.map(|column| format!("{column:>8}")));
    list.push('\n');
    for (text, figures) in all {
        let budget = known.get(text);
        list += &format!("{:<24}", format!("{text}:"));
        for column in 0..COLUMNS.len() {
            let now = figures.of(column);
            let figure = budget.map_or(now, |of| of[column].min(now));
            list += &format!("{:>8}", show(column, figure));
        }
        list.push('\n');
    }
    list
}
