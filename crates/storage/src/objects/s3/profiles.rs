//! The profiles of `~/.aws/credentials` and `~/.aws/config`: of each, what a store needs.

use crate::objects::StoreTrouble;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a profile says.
#[derive(Default)]
pub(super) struct AwsProfile {
    pub(super) key_id: Option<String>,
    pub(super) secret: Option<String>,
    pub(super) token: Option<String>,
    pub(super) region: Option<String>,
    pub(super) endpoint: Option<String>,
}

/// How a profile may get credentials that are not in a file.
const ELSEWHERE: [&str; 5] = [
    "credential_process",
    "role_arn",
    "sso_session",
    "sso_start_url",
    "login_session",
];

impl AwsProfile {
    /// The profile that `AWS_PROFILE` names, or the one called `default`.
    pub(super) fn read(
        get: &dyn Fn(&str) -> Option<String>,
        has_keys: bool,
    ) -> Result<AwsProfile, StoreTrouble> {
        let named = get("AWS_PROFILE");
        let name = named.clone().unwrap_or_else(|| "default".into());
        let file = |variable: &str, name: &str| {
            let home = get("HOME").map(|home| PathBuf::from(home).join(".aws").join(name));
            let path = get(variable).map(PathBuf::from).or(home)?;
            // One that cannot be read has nothing.
            std::fs::read_to_string(path).ok()
        };
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
        let config = file("AWS_CONFIG_FILE", "config").unwrap_or_default();
        let kept = section(&credentials, &[&name]);
        let configured = match name.as_str() {
            "default" => section(&config, &["default", "profile default"]),
            other => section(&config, &[&format!("profile {other}")]),
        };
        if kept.is_none() && configured.is_none() && named.is_some() {
            let why = format!(
                "AWS_PROFILE: there is no profile `{name}` in ~/.aws/credentials or ~/.aws/config; `aws configure list-profiles` names those there are"
            );
            return Err(StoreTrouble::Other(why));
        }
        // What stands in `credentials` goes first.
        let mut all = configured.unwrap_or_default();
        all.extend(kept.unwrap_or_default());
        let elsewhere = ELSEWHERE.iter().find(|it| all.contains_key(**it));
        let mut take = |key: &str| all.remove(key).filter(|value| !value.is_empty());
        let profile = AwsProfile {
            key_id: take("aws_access_key_id"),
            secret: take("aws_secret_access_key"),
            token: take("aws_session_token"),
            region: take("region"),
            endpoint: take("endpoint_url"),
        };
        match elsewhere {
            Some(how) if profile.key_id.is_none() && !has_keys => {
                let why = format!(
                    "the profile `{name}` gets its credentials by {how}, which a store does not; put them into the environment: eval \"$(aws configure export-credentials --profile {name} --format env)\""
                );
                Err(StoreTrouble::Other(why))
            }
            _ => Ok(profile),
        }
    }
}

/// The values of a section that has one of these names. Values of lines that stand further to the right belong to another value.
fn section(text: &str, names: &[&str]) -> Option<BTreeMap<String, String>> {
    let mut found: Option<BTreeMap<String, String>> = None;
    let mut is_in = false;
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.split(']').next().unwrap_or_default();
            let words: Vec<&str> = name.split_whitespace().collect();
            is_in = names.contains(&words.join(" ").as_str());
            if is_in {
                found.get_or_insert_default();
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| is_in && !is_nested) else {
            continue;
        };
        // A comment begins behind a space: keys may have the sign.
        let value = [" #", " ;", "\t#", "\t;"]
            .iter()
            .fold(value, |value, comment| {
                value.split_once(comment).map_or(value, |(value, _)| value)
            });
        let entry = (key.trim().to_ascii_lowercase(), value.trim().to_owned());
        found.get_or_insert_default().extend([entry]);
    }
    found
}
