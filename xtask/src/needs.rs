//! What the machine must have: a table of needs, how each is found, and the Debian packages that
//! bring it.
//!
//! A need that is missing is installed where that is possible (Debian or Ubuntu, as root) and
//! otherwise named together with the command that installs it.

use std::env;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::process::{Runner, shown};
use crate::workspace;

/// The variable that lists backends which must be there.
pub const REQUIRE: &str = "REQUIRE_BACKENDS";

/// How long the installation of packages may take.
const INSTALL_LIMIT: Duration = Duration::from_secs(900);

/// Something outside this repository that a task needs.
pub struct Need {
    /// What it is called.
    pub name: &'static str,
    /// Debian packages that bring it.
    pub packages: &'static [&'static str],
    /// Says what was found, or what is missing.
    pub probe: fn() -> std::result::Result<String, String>,
}

/// A backend that tests can run on.
pub struct Backend {
    /// What it needs; the name is the one used in `REQUIRE_BACKENDS`.
    pub need: Need,
    /// Features that build its tests, besides the default ones.
    pub features: &'static [&'static str],
}

/// Every backend there is.
pub const BACKENDS: &[Backend] =
    &[Backend { need: Need { name: "cpu", packages: &[], probe: probe_cpu }, features: &[] }];

/// Python with virtual environments, for PyTorch.
pub const PYTHON: Need =
    Need { name: "python", packages: &["python3", "python3-venv"], probe: probe_python };

/// Installs what is missing and returns the backends that are there.
///
/// # Errors
/// A backend that `required` (a list with commas) names is unknown or still missing, or an
/// installation fails.
pub fn backends(
    runner: &Runner,
    table: &'static [Backend],
    required: &str,
) -> Result<Vec<&'static Backend>> {
    let required = parse_required(table, required)?;
    let mut present = Vec::new();
    for backend in table {
        let name = backend.need.name;
        match ensure(runner, &backend.need) {
            Ok(found) => {
                eprintln!("backend {name}: {found}");
                present.push(backend);
            }
            Err(reason) if required.contains(&name) => {
                return Err(reason.context(format!("{REQUIRE} names {name}, which is missing")));
            }
            Err(reason) => eprintln!("backend {name}: skipped: {reason:#}"),
        }
    }
    Ok(present)
}

/// The names in `required`, each of which must be in the table.
fn parse_required<'a>(table: &[Backend], required: &'a str) -> Result<Vec<&'a str>> {
    let names: Vec<&str> =
        required.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let known: Vec<&str> = table.iter().map(|backend| backend.need.name).collect();
    match names.iter().find(|name| !known.contains(name)) {
        None => Ok(names),
        Some(name) => bail!("{REQUIRE} names `{name}`; the backends are {}", known.join(", ")),
    }
}

/// What was found for `need`, after an installation if it takes one.
///
/// # Errors
/// It is missing and cannot be installed from here, or is missing even then.
pub fn ensure(runner: &Runner, need: &Need) -> Result<String> {
    let missing = match (need.probe)() {
        Ok(found) => return Ok(found),
        Err(missing) => missing,
    };
    match plan(need.packages, is_root(), has_program("apt-get")) {
        Plan::Nothing => bail!("{missing}"),
        Plan::Ask(advice) => bail!("{missing}; {advice}"),
        Plan::Install => {
            eprintln!("{}: {missing}; installing {}", need.name, need.packages.join(", "));
            for mut command in apt_get(need.packages) {
                runner.run(&mut command, INSTALL_LIMIT)?;
            }
        }
    }
    let packages = need.packages.join(", ");
    (need.probe)().map_err(|missing| anyhow::anyhow!("{missing}, even after installing {packages}"))
}

/// How a missing need can be met.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// No package brings it.
    Nothing,
    /// Packages can be installed from here.
    Install,
    /// A person has to; the advice says how.
    Ask(String),
}

fn plan(packages: &[&str], is_root: bool, has_apt: bool) -> Plan {
    let list = packages.join(" ");
    match (packages.is_empty(), has_apt, is_root) {
        (true, ..) => Plan::Nothing,
        (_, true, true) => Plan::Install,
        (_, true, false) => Plan::Ask(format!("run: sudo apt-get install {list}")),
        (_, false, _) => Plan::Ask(format!("install what Debian calls {list}")),
    }
}

/// The commands that install `packages`.
fn apt_get(packages: &[&str]) -> [Command; 2] {
    let [mut update, mut install] = [workspace::command("apt-get"), workspace::command("apt-get")];
    update.args(["update", "--quiet"]);
    install.args(["install", "--quiet", "--yes", "--no-install-recommends"]).args(packages);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    [update, install]
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a file called `name` lies on the search path.
fn has_program(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| Path::new(&folder).join(name).is_file())
}

fn probe_cpu() -> std::result::Result<String, String> {
    let threads = thread::available_parallelism().map_err(|error| error.to_string())?;
    Ok(format!("{} threads, {}", threads, env::consts::ARCH))
}

fn probe_python() -> std::result::Result<String, String> {
    let mut python = Command::new("python3");
    python.args(["-c", "import ensurepip, platform, venv; print(platform.python_version())"]);
    match python.output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(_) => Err("python3 lacks its modules venv and ensurepip".to_owned()),
        Err(error) => Err(format!("`{}` does not start: {error}", shown(&python))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: &[Backend] = &[
        Backend {
            need: Need { name: "here", packages: &[], probe: || Ok("found".to_owned()) },
            features: &[],
        },
        Backend {
            need: Need { name: "absent", packages: &[], probe: || Err("no driver".to_owned()) },
            features: &[],
        },
    ];

    fn names(required: &str) -> Result<Vec<&'static str>> {
        let present = backends(&Runner::new()?, TABLE, required)?;
        Ok(present.iter().map(|backend| backend.need.name).collect())
    }

    #[test]
    fn an_absent_backend_is_skipped_unless_it_is_required() {
        assert_eq!(names("").unwrap(), ["here"]);
        assert_eq!(names(" here, ").unwrap(), ["here"]);
        let error = format!("{:#}", names("here,absent").unwrap_err());
        assert_eq!(error, "REQUIRE_BACKENDS names absent, which is missing: no driver");
    }

    #[test]
    fn an_unknown_backend_is_refused_by_name() {
        let error = names("here,abacus").unwrap_err().to_string();
        assert_eq!(error, "REQUIRE_BACKENDS names `abacus`; the backends are here, absent");
    }

    #[test]
    fn packages_are_installed_by_root_and_asked_for_by_others() {
        assert_eq!(plan(&[], true, true), Plan::Nothing);
        assert_eq!(plan(&["a", "b"], true, true), Plan::Install);
        let Plan::Ask(advice) = plan(&["a", "b"], false, true) else { panic!("asks") };
        assert_eq!(advice, "run: sudo apt-get install a b");
        let Plan::Ask(advice) = plan(&["a", "b"], true, false) else { panic!("asks") };
        assert_eq!(advice, "install what Debian calls a b");
        let [_, install] = apt_get(&["a", "b"]);
        assert!(shown(&install).ends_with("install --quiet --yes --no-install-recommends a b"));
    }

    #[test]
    fn the_cpu_is_a_backend_that_is_always_there() {
        let cpu = BACKENDS.iter().find(|backend| backend.need.name == "cpu").unwrap();
        assert!((cpu.need.probe)().unwrap().contains("threads"));
    }
}
