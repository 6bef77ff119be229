//! The scripts of `redis-scripts/`, each joined with the files that it includes.

use std::sync::LazyLock;

use super::call::Call;

/// How many arguments a script takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Args {
    /// Exactly this many.
    Exactly(usize),
    /// This many or more.
    AtLeast(usize),
}

/// A script, ready to run.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    source: &'static str,
    args: Args,
    script: ::redis::Script,
}

impl Script {
    fn new(name: &'static str, args: Args, source: &'static str) -> Self {
        Self { name, source, args, script: ::redis::Script::new(source) }
    }

    /// The name of its file without the extension; also the `script` label of the metrics.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The whole text that Redis gets.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// A call with these keys and arguments. Checks the number of arguments, as the script itself does.
    pub(super) fn call<K: AsRef<str>>(&'static self, keys: &[K], args: &[String]) -> Call {
        debug_assert!(
            match self.args {
                Args::Exactly(count) => args.len() == count,
                Args::AtLeast(count) => args.len() >= count,
            },
            "{} takes {:?}, not {}",
            self.name,
            self.args,
            args.len()
        );
        Call::script(&self.script, keys, args)
    }
}

macro_rules! source {
    ($first:literal $(, $more:literal)*) => {
        concat!(
            include_str!(concat!("../../redis-scripts/", $first))
            $(, "\n", include_str!(concat!("../../redis-scripts/", $more)))*
        )
    };
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $static:ident = $name:literal, $args:expr, [$($file:literal),+];)+) => {
        $($(#[$doc])* pub static $static: LazyLock<Script> =
            LazyLock::new(|| Script::new($name, $args, source!($($file),+)));)+

        /// Every script.
        pub fn all() -> Vec<&'static Script> {
            vec![$(&*$static),+]
        }
    };
}

scripts! {
    /// People enter.
    ENTER = "enter", Args::AtLeast(9), ["includes/target.lua", "includes/pace.lua", "includes/visit.lua", "enter.lua"];
    /// People poll.
    STATUS = "status", Args::AtLeast(9), ["includes/target.lua", "includes/pace.lua", "includes/visit.lua", "status.lua"];
    /// A person leaves.
    LEAVE = "leave", Args::Exactly(9), ["includes/target.lua", "leave.lua"];
    /// Purchases begin and end.
    PURCHASE = "purchase", Args::AtLeast(13), ["includes/target.lua", "purchase.lua"];
    /// Silent people are evicted.
    EVICT = "evict", Args::Exactly(8), ["includes/target.lua", "includes/pace.lua", "includes/silence.lua", "evict.lua"];
    /// The batch of one tick.
    ADMIT = "admit", Args::Exactly(8), ["includes/target.lua", "includes/pace.lua", "includes/silence.lua", "admit.lua"];
    /// Reads the books.
    STATS = "stats", Args::Exactly(8), ["includes/target.lua", "includes/pace.lua", "stats.lua"];
    /// Adds direct passes to the books.
    DIRECT = "direct", Args::Exactly(9), ["includes/target.lua", "direct.lua"];
    /// Takes over people who were admitted during an outage.
    ADOPT = "adopt", Args::AtLeast(10), ["includes/target.lua", "adopt.lua"];
    /// Room for a new active target. Not a script of a target: its key is `queue:active`.
    REGISTER = "register", Args::Exactly(2), ["register.lua"];
    /// Writes back settings that Redis has lost.
    SETTINGS_RESTORE = "settings_restore", Args::AtLeast(11), ["includes/target.lua", "includes/pace.lua", "settings_restore.lua"];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a script's own file, which follows its includes, as one text without the dashes.
    fn header(script: &Script) -> String {
        let title = format!("-- {}.lua: ", script.name);
        let own = &script.source[script.source.find(&title).expect("every script begins with its name")..];
        let lines = own.lines().take_while(|line| line.starts_with("--"));
        lines.map(|line| line.trim_start_matches("--")).collect::<Vec<_>>().join("\n")
    }

    /// The arguments that the ARGV line of a header describes: `9.. the users` means one or more from 9 on, else the
    /// last number counts.
    fn described(script: &Script) -> Args {
        let header = header(script);
        let line = header.lines().find_map(|line| line.trim().strip_prefix("ARGV")).expect("every header has ARGV");
        let last = line.trim().split(';').flat_map(|part| part.split("   ")).last().expect("one at least").trim();
        let number = last.split_once(' ').expect("a number and words").0;
        match number.split_once("..") {
            Some((from, "")) => Args::AtLeast(from.parse().unwrap()),
            Some((_, to)) => Args::Exactly(to.parse().unwrap()),
            None => Args::Exactly(number.parse().unwrap()),
        }
    }

    #[test]
    fn header_assert_and_registry_agree_on_the_arguments() {
        for script in all() {
            let asserted = match script.args {
                Args::Exactly(count) => format!("#ARGV == {count}"),
                Args::AtLeast(count) => format!("#ARGV >= {count}"),
            };
            let own_assert = script.source.lines().rfind(|line| line.starts_with("assert(")).unwrap();
            assert!(own_assert.contains(&asserted), "{}: {own_assert} against {:?}", script.name, script.args);
            assert_eq!(described(script), script.args, "{}", script.name);
        }
    }

    #[test]
    fn every_header_tells_keys_arguments_reply_and_an_example() {
        for script in all() {
            let header = header(script);
            for part in ["KEYS", "ARGV", "Reply", "Example"] {
                let there = header.lines().any(|line| line.trim().starts_with(part));
                assert!(there, "{}: no {part}", script.name);
            }
        }
    }

    #[test]
    fn the_first_line_of_code_of_a_script_of_a_target_counts_keys_and_arguments() {
        for script in all() {
            let first = script.source.lines().find(|line| !line.starts_with("--")).unwrap();
            assert!(first.starts_with("assert(#KEYS == "), "{}: {first}", script.name);
        }
    }
}
