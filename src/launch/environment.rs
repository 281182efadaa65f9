//! What the environment says about ranks and threads.

use std::collections::HashMap;

use sneppx_contract::{Error, Result};

/// A copy of the environment's variables.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: HashMap<String, String>,
}

impl Environment {
    /// The process's own. Names and values that are not UTF-8 are passed over.
    pub fn of_process() -> Self {
        let unicode = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Environment { variables: std::env::vars_os().filter_map(unicode).collect() }
    }

    /// Given variables alone.
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        Environment { variables: variables.iter().map(own).collect() }
    }

    /// The whole number in variable `name`, if it is set.
    ///
    /// # Errors
    /// A value that is not a whole number.
    pub fn number(&self, name: &'static str) -> Result<Option<usize>> {
        let Some(text) = self.variables.get(name) else { return Ok(None) };
        let parsed = text.trim().parse();
        parsed.map(Some).map_err(|_| Error::invalid(name, text, "must be a whole number"))
    }
}

/// How this process takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Threads the device may use.
    pub threads: usize,
}

impl Launch {
    /// What arguments and environment say: `threads` where it is not 0, else `RAYON_NUM_THREADS`,
    /// else every core this process may use.
    ///
    /// # Errors
    /// A variable that is not a number; variables that ask for more than one rank, which no
    /// communicator of this build serves: training on alone, as if they were not there, would
    /// give every rank the same work.
    pub fn detect(threads: usize, environment: &Environment) -> Result<Self> {
        for name in WORLD_SIZES {
            if let Some(size) = environment.number(name)?
                && size > 1
            {
                let reason = "several ranks were asked for, and this build has the communicator of \
                              one rank only; unset the variable or start one process";
                return Err(Error::invalid(name, size, reason));
            }
        }
        if threads > 0 {
            return Ok(Launch { threads });
        }
        if let Some(threads) = environment.number("RAYON_NUM_THREADS")?
            && threads > 0
        {
            return Ok(Launch { threads });
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Launch { threads: cores })
    }
}

/// Where starters of several ranks say how many there are.
const WORLD_SIZES: [&str; 3] = ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_win_over_variables() {
        let environment = Environment::of(&[("RAYON_NUM_THREADS", "3")]);
        assert_eq!(Launch::detect(2, &environment).unwrap().threads, 2);
        assert_eq!(Launch::detect(0, &environment).unwrap().threads, 3);
    }

    #[test]
    fn a_value_that_is_no_number_is_named() {
        let environment = Environment::of(&[("RAYON_NUM_THREADS", "many")]);
        let message = Launch::detect(0, &environment).unwrap_err().to_string();
        assert!(message.contains("RAYON_NUM_THREADS = many"), "{message}");
    }

    #[test]
    fn several_ranks_are_refused_and_never_trained_as_one() {
        for name in WORLD_SIZES {
            let message =
                Launch::detect(1, &Environment::of(&[(name, "2")])).unwrap_err().to_string();
            assert!(message.contains(&format!("{name} = 2")), "{message}");
            assert!(Launch::detect(1, &Environment::of(&[(name, "1")])).is_ok());
        }
    }
}
