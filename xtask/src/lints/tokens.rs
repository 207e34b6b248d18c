//! A file as a flat list of tokens with their lines.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One token. Delimiters are tokens; `::` is two.
#[derive(Debug)]
pub struct Token {
    /// As written.
    pub text: String,
    /// Counted from 1.
    pub line: usize,
    /// Inside an item under `#[cfg(test)]` or `#[test]`.
    pub in_test: bool,
    /// Inside a `use` declaration.
    pub in_use: bool,
}

/// Reads a file. Fails only on text that is not Rust.
pub fn tokens(text: &str) -> Result<Vec<Token>, proc_macro2::LexError> {
    let stream: TokenStream = text.parse()?;
    let mut found = Vec::new();
    flatten(stream, false, false, &mut found);
    Ok(found)
}

fn flatten(stream: TokenStream, in_test: bool, in_use: bool, found: &mut Vec<Token>) {
    let (mut test_item, mut in_use) = (false, in_use);
    let mut after_hash = false;
    for tree in stream {
        let here = in_test || test_item;
        let line = tree.span().start().line;
        let mut push = |text: String, line, in_use| {
            found.push(Token {
                text,
                line,
                in_test: here,
                in_use,
            });
        };
        let is_hash = matches!(&tree, TokenTree::Punct(punct) if punct.as_char() == '#');
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = delimiters(group.delimiter());
                push(open.to_owned(), line, in_use);
                flatten(group.stream(), here, in_use, found);
                found.push(Token {
                    text: close.to_owned(),
                    line: group.span_close().start().line,
                    in_test: here,
                    in_use,
                });
                if after_hash && marks_test(&group.stream().to_string()) {
                    test_item = true;
                } else if group.delimiter() == Delimiter::Brace {
                    test_item = false;
                }
            }
            tree => {
                let text = tree.to_string();
                in_use = (in_use || text == "use") && text != ";";
                test_item = test_item && text != ";";
                push(text, line, in_use);
            }
        }
        after_hash = is_hash;
    }
}

/// Whether an attribute's content is `test`, `cfg(test)` or `cfg(all(test, …))`.
fn marks_test(attribute: &str) -> bool {
    let plain = attribute.replace(' ', "");
    ["test", "cfg(test)"].contains(&plain.as_str()) || plain.starts_with("cfg(all(test,")
}

fn delimiters(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, word: &str, expected_line: usize, in_test: bool, in_use: bool) {
        let found = tokens(text).unwrap();
        let token = found.iter().find(|it| it.text == word).unwrap();
        assert_eq!(
            (token.line, token.in_test, token.in_use),
            (expected_line, in_test, in_use),
            "{text}"
        );
    }

    #[test]
    fn lines_tests_and_uses_are_known() {
        check("fn a() {\n  b();\n}", "b", 2, false, false);
        check("#[cfg(test)]\nmod tests { fn a() {} }", "a", 2, true, false);
        check(
            "#[cfg(test)]\nmod tests {}\nfn a() {}",
            "a",
            3,
            false,
            false,
        );
        check("#[cfg(test)]\nuse x;\nfn a() {}", "a", 3, false, false);
        check("#[test]\nfn a() {}", "a", 2, true, false);
        check("#[cfg(not(test))]\nfn a() {}", "a", 2, false, false);
        check("use std::{a, b};", "a", 1, false, true);
        check("use std::b;\nfn a() {}", "a", 2, false, false);
    }

    #[test]
    fn comments_and_strings_are_no_tokens() {
        let found = tokens("// now\n/// now\nfn a() { \"now\"; /* now */ }").unwrap();
        assert!(found.iter().all(|token| token.text != "now"));
    }
}
