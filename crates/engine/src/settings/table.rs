//! The settings there are: whatever names, lists or documents them reads this table.

/// A setting: what it is called in each source, and what may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Its name in the settings file, and of arguments.
    pub key: &'static str,
    /// Its name in the environment.
    pub variable: &'static str,
    /// How it is given in Rust.
    pub in_rust: &'static str,
    /// How it is given in Python.
    pub in_python: &'static str,
    /// A line of the settings file.
    pub example: &'static str,
    /// What may be given.
    pub values: &'static str,
    /// What counts when nobody gives it.
    pub default: &'static str,
}

/// Every setting.
pub const SETTINGS: [Setting; 13] = [
    Setting {
        key: "threads",
        variable: "BRAMBLING_THREADS",
        in_rust: "`RunOptions::threads`",
        in_python: "`p.run(threads=…)`",
        example: "threads = 4",
        values: "1 to 1,024",
        default: "CPUs in the process's mask, capped by its control group's quota",
    },
    Setting {
        key: "partitions",
        variable: "BRAMBLING_PARTITIONS",
        in_rust: "`RunOptions::partitions`",
        in_python: "`p.load(…, partitions=…)`",
        example: "partitions = 64",
        values: "1 to 16,777,216",
        default: "follows the size of the loaded data, never the machine",
    },
    Setting {
        key: "isa",
        variable: "BRAMBLING_ISA",
        in_rust: "none",
        in_python: "none",
        example: "isa = \"v3\"",
        values: "`v2` (SSE4.2), `v3` (AVX2), `v4` (AVX-512)",
        default: "the best that the CPU has",
    },
    Setting {
        key: "memory",
        variable: "BRAMBLING_MEMORY",
        in_rust: "`RunOptions::memory`",
        in_python: "none",
        example: "memory = \"8GB\"",
        values: "bytes, or a number with KB, MB, GB or TB (powers of 1,024)",
        default: "70 % of the machine's memory, or of the control group's limit when that is less",
    },
    Setting {
        key: "spill",
        variable: "BRAMBLING_SPILL",
        in_rust: "`Settings::spill`",
        in_python: "none",
        example: "spill = \"/var/tmp:100GB\"",
        values: "a directory, or a directory and what may be spilled there",
        default: "none: nothing is spilled",
    },
    Setting {
        key: "stall_seconds",
        variable: "BRAMBLING_STALL_SECONDS",
        in_rust: "`RunOptions::stall_seconds`",
        in_python: "none",
        example: "stall_seconds = 60.0",
        values: "a positive number",
        default: "60",
    },
    Setting {
        key: "stuck_kernel_s",
        variable: "BRAMBLING_STUCK_KERNEL_S",
        in_rust: "`Settings::stuck_kernel_s`",
        in_python: "none",
        example: "stuck_kernel_s = 60.0",
        values: "a positive number",
        default: "60",
    },
    Setting {
        key: "progress",
        variable: "BRAMBLING_PROGRESS",
        in_rust: "none",
        in_python: "none",
        example: "progress = false",
        values: "`true` or `false`",
        default: "`true`: from 2 s on, where somebody looks (a terminal, a notebook)",
    },
    Setting {
        key: "log",
        variable: "BRAMBLING_LOG",
        in_rust: "none",
        in_python: "none",
        example: "log = \"info\"",
        values: "`off`, `error`, `warning`, `info`, `debug`",
        default: "`off`",
    },
    Setting {
        key: "weight",
        variable: "BRAMBLING_WEIGHT",
        in_rust: "`RunOptions::weight`",
        in_python: "`p.run(weight=…)`",
        example: "weight = 2",
        values: "1 to 1,000",
        default: "1",
    },
    Setting {
        key: "store",
        variable: "BRAMBLING_STORE",
        in_rust: "`RunOptions::store`",
        in_python: "`p.run(store=…)`",
        example: "store = \"/var/lib/brambling\"",
        values: "a directory, or `s3://BUCKET/PREFIX`",
        default: "none: nothing is kept, and a job that is started again begins at its start",
    },
    Setting {
        key: "snapshot_every",
        variable: "BRAMBLING_SNAPSHOT_EVERY",
        in_rust: "`RunOptions::snapshot_every`",
        in_python: "`p.run(snapshot_every=…)`",
        example: "snapshot_every = \"10s\"",
        values: "a time (`10s`, `500ms`, `2min`), a number of turns (`20 turns`), or `off`",
        default: "`10s`",
    },
    Setting {
        key: "silence",
        variable: "BRAMBLING_SILENCE",
        in_rust: "`Settings::silence`",
        in_python: "none",
        example: "silence = \"30s\"",
        values: "a time of at least a second (`30s`, `2min`)",
        default: "`30s`",
    },
];

/// The settings' names in the environment.
pub const ENVIRONMENT: [&str; SETTINGS.len()] = {
    let mut names = [""; SETTINGS.len()];
    let mut place = 0;
    while place < names.len() {
        names[place] = SETTINGS[place].variable;
        place += 1;
    }
    names
};

/// The setting of a key.
pub(super) fn of(key: &str) -> &'static Setting {
    let setting = SETTINGS.iter().find(|setting| setting.key == key);
    setting.expect("a setting's key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    const BEGIN: &str = "<!-- from crates/engine/src/settings/table.rs -->\n";
    const END: &str = "<!-- end -->\n";

    fn page_tables() -> String {
        let mut text =
            "| setting | values | default | in `brambling.toml` |\n|---|---|---|---|\n".to_owned();
        for it in SETTINGS {
            let row = format!("| {} | {} | `{}` |\n", it.values, it.default, it.example);
            text += &format!("| `{}` {row}", it.key);
        }
        text +=
            "\n| setting | variable | argument in Rust | argument in Python |\n|---|---|---|---|\n";
        for it in SETTINGS {
            let row = format!(
                "| `{}` | {} | {} |\n",
                it.variable, it.in_rust, it.in_python
            );
            text += &format!("| `{}` {row}", it.key);
        }
        text
    }

    /// With UPDATE_EXPECT set the page's tables are written anew.
    #[test]
    fn the_page_has_the_table() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let start = page.find(BEGIN).expect("where the tables begin") + BEGIN.len();
        let end = page.find(END).expect("where the tables end");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(
                PAGE,
                page[..start].to_owned() + &page_tables() + &page[end..],
            )
            .unwrap();
            return;
        }
        assert_eq!(
            page[start..end],
            page_tables(),
            "UPDATE_EXPECT=1 cargo test --release -p brambling the_page_has_the_table writes docs/settings.md"
        );
    }

    /// A setting is called the same everywhere, and its example is read.
    #[test]
    fn every_setting_has_one_name() {
        for setting in SETTINGS {
            let upper = setting.key.to_uppercase();
            assert_eq!(setting.variable, format!("BRAMBLING_{upper}"));
            let file: Settings = toml::from_str(setting.example).expect(setting.example);
            assert_ne!(file, Settings::default(), "{}", setting.example);
        }
        assert_eq!(of("memory").variable, "BRAMBLING_MEMORY");
    }
}
