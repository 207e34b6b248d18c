//! Who a process is to a server, and where that is: from the environment, or from the files that AWS's own tools read. What is secret stays here.

use super::profiles::AwsProfile;
use crate::objects::StoreTrouble;
use object_store::ClientOptions;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is given to requests. It has no `Debug`: it has secrets.
pub(super) struct S3Access {
    options: Vec<(AmazonS3ConfigKey, String)>,
    /// What no text may have.
    secrets: Vec<String>,
    is_http_allowed: bool,
}

/// Variables that say how requests are made or what they write to, which the store decides itself.
const OWN: [&str; 6] = [
    "AWS_BUCKET",
    "AWS_BUCKET_NAME",
    "AWS_CONDITIONAL_PUT",
    "AWS_COPY_IF_NOT_EXISTS",
    "AWS_TIMEOUT",
    "AWS_CONNECT_TIMEOUT",
];
/// By these a process gets credentials without having been given any.
const ELSEWHERE: [&str; 3] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

impl S3Access {
    /// What these variables, and the files that they or the home directory name, say.
    pub(super) fn of(variables: &BTreeMap<String, String>) -> Result<S3Access, StoreTrouble> {
        let get = |name: &str| {
            variables
                .get(name)
                .filter(|value| !value.is_empty())
                .cloned()
        };
        let has_keys = get("AWS_ACCESS_KEY_ID").is_some() && get("AWS_SECRET_ACCESS_KEY").is_some();
        let gets_keys = ELSEWHERE.iter().any(|name| get(name).is_some());
        let profile = AwsProfile::read(&get, has_keys || gets_keys)?;
        let mut access = S3Access {
            options: Vec::new(),
            secrets: Vec::new(),
            is_http_allowed: get("AWS_ALLOW_HTTP").is_some_and(|it| is_true(&it)),
        };
        for (name, value) in variables {
            let is_ours = name.starts_with("AWS_") && !OWN.contains(&name.as_str());
            // Half of a pair of keys is none.
            let is_half = !has_keys
                && matches!(
                    name.as_str(),
                    "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" | "AWS_SESSION_TOKEN"
                );
            if is_ours && !is_half && !value.is_empty() {
                access.give(&name.to_ascii_lowercase(), value.clone());
            }
        }
        let profiled = [
            ("aws_access_key_id", profile.key_id.filter(|_| !has_keys)),
            (
                "aws_secret_access_key",
                profile.secret.filter(|_| !has_keys),
            ),
            ("aws_session_token", profile.token.filter(|_| !has_keys)),
            (
                "aws_region",
                profile
                    .region
                    .filter(|_| get("AWS_REGION").is_none() && get("AWS_DEFAULT_REGION").is_none()),
            ),
            (
                "aws_endpoint_url",
                profile
                    .endpoint
                    .filter(|_| get("AWS_ENDPOINT_URL").is_none()),
            ),
        ];
        for (name, value) in profiled {
            value.into_iter().for_each(|value| access.give(name, value));
        }
        access.check(
            gets_keys,
            get("AWS_EC2_METADATA_DISABLED").is_some_and(|it| is_true(&it)),
        )?;
        Ok(access)
    }

    fn give(&mut self, name: &str, value: String) {
        use AmazonS3ConfigKey::{AccessKeyId, Endpoint, S3Endpoint, SecretAccessKey, Token};
        let Ok(key) = name.parse::<AmazonS3ConfigKey>() else {
            return;
        };
        match key {
            AccessKeyId | SecretAccessKey | Token => self.secrets.push(value.clone()),
            // A name and a password may stand in an address.
            Endpoint | S3Endpoint => self.secrets.extend(user_of(&value)),
            _ => {}
        }
        self.options.push((key, value));
    }

    fn check(&self, gets_keys: bool, is_alone: bool) -> Result<(), StoreTrouble> {
        use AmazonS3ConfigKey::{AccessKeyId, Endpoint, S3Endpoint, SkipSignature};
        let has = |key: AmazonS3ConfigKey| self.options.iter().any(|(its, _)| *its == key);
        if !has(AccessKeyId) && !has(SkipSignature) && !gets_keys && is_alone {
            let why = "this process has no credentials".to_owned();
            return Err(StoreTrouble::Credentials(why));
        }
        let is_open = |(key, value): &(AmazonS3ConfigKey, String)| {
            matches!(key, Endpoint | S3Endpoint) && value.starts_with("http://")
        };
        if self.options.iter().any(is_open) && !self.is_http_allowed {
            let why = "AWS_ENDPOINT_URL is of http, which hides nothing from who listens; give one of https, or set AWS_ALLOW_HTTP=true";
            return Err(StoreTrouble::Other(why.into()));
        }
        Ok(())
    }

    /// Requests to a bucket as they are made with this.
    pub(super) fn builder(
        &self,
        bucket: &str,
        connect: Duration,
        request: Duration,
    ) -> AmazonS3Builder {
        let client = ClientOptions::new()
            .with_connect_timeout(connect)
            .with_timeout(request)
            .with_allow_http(self.is_http_allowed);
        let builder = AmazonS3Builder::new().with_client_options(client);
        let given = self.options.iter().fold(builder, |builder, (key, value)| {
            builder.with_config(*key, value)
        });
        given
            .with_bucket_name(bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
    }

    /// A text without what is secret.
    pub(super) fn scrubbed(&self, text: &str) -> String {
        let secrets = self.secrets.iter().filter(|secret| !secret.is_empty());
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "…"))
    }
}

fn is_true(value: &str) -> bool {
    matches!(
        value.to_ascii_lowercase().as_str(),
        "true" | "1" | "yes" | "on"
    )
}

/// The name and the password of an address, each and both.
fn user_of(address: &str) -> Vec<String> {
    let behind = address
        .split_once("://")
        .map_or(address, |(_, behind)| behind);
    let host = behind.split('/').next().unwrap_or_default();
    let Some((user, _)) = host.rsplit_once('@') else {
        return Vec::new();
    };
    let mut parts = vec![user.to_owned()];
    parts.extend(user.split(':').map(str::to_owned));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let mut variables: BTreeMap<String, String> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        variables
            .entry("HOME".into())
            .or_insert("/nonexistent".into());
        variables
    }

    fn option(access: &S3Access, key: AmazonS3ConfigKey) -> Option<&str> {
        let mut options = access.options.iter().filter(|(its, _)| *its == key);
        options.next().map(|(_, value)| value.as_str())
    }

    #[test]
    fn the_environment_comes_before_profiles() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(home.path().join(".aws").join(name), text).unwrap()
        };
        write(
            "credentials",
            "[default]\naws_access_key_id = D\naws_secret_access_key=DS\n[own]\naws_access_key_id=O # mine\naws_secret_access_key = O/S=\naws_session_token=T\n",
        );
        write(
            "config",
            "[default]\nregion=eu-1\n[profile own]\nregion = us-7\ns3 =\n  addressing_style = path\nendpoint_url = https://own.example\n",
        );
        let home = home.path().to_str().unwrap();
        use AmazonS3ConfigKey::{AccessKeyId, Endpoint, Region, SecretAccessKey, Token};
        let default = S3Access::of(&variables(&[("HOME", home)])).ok().unwrap();
        assert_eq!(option(&default, AccessKeyId), Some("D"));
        assert_eq!(option(&default, Region), Some("eu-1"));
        let own = S3Access::of(&variables(&[("HOME", home), ("AWS_PROFILE", "own")]))
            .ok()
            .unwrap();
        assert_eq!(option(&own, AccessKeyId), Some("O"));
        assert_eq!(option(&own, SecretAccessKey), Some("O/S="));
        assert_eq!(option(&own, Token), Some("T"));
        assert_eq!(option(&own, Region), Some("us-7"));
        assert_eq!(option(&own, Endpoint), Some("https://own.example"));
        let given = S3Access::of(&variables(&[
            ("HOME", home),
            ("AWS_PROFILE", "own"),
            ("AWS_ACCESS_KEY_ID", "E"),
            ("AWS_SECRET_ACCESS_KEY", "ES"),
            ("AWS_REGION", "here"),
        ]));
        let given = given.ok().unwrap();
        assert_eq!(option(&given, AccessKeyId), Some("E"));
        // A token belongs to its keys.
        assert_eq!(option(&given, Token), None);
        assert_eq!(option(&given, Region), Some("here"));
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_way_out() {
        let refused = |pairs: &[(&str, &str)]| {
            let refused = S3Access::of(&variables(pairs)).err().unwrap();
            refused.to_string()
        };
        let of_nobody = refused(&[("AWS_EC2_METADATA_DISABLED", "true")]);
        assert!(
            of_nobody.contains("no credentials; set AWS_ACCESS_KEY_ID"),
            "{of_nobody}"
        );
        let unknown = refused(&[("AWS_PROFILE", "none")]);
        assert!(unknown.contains("no profile `none`"), "{unknown}");
        let open = refused(&[
            ("AWS_ACCESS_KEY_ID", "k"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("AWS_ENDPOINT_URL", "http://a.example"),
        ]);
        assert!(open.contains("set AWS_ALLOW_HTTP=true"), "{open}");
    }

    #[test]
    fn secrets_are_taken_out_of_texts() {
        let access = S3Access::of(&variables(&[
            ("AWS_ACCESS_KEY_ID", "AKIA123"),
            ("AWS_SECRET_ACCESS_KEY", "geheim"),
            ("AWS_SESSION_TOKEN", "tok/en"),
            ("AWS_ENDPOINT_URL", "https://me:pass@a.example"),
        ]));
        let text = "AKIA123 geheim tok/en https://me:pass@a.example pass";
        assert_eq!(
            access.ok().unwrap().scrubbed(text),
            "… … … https://…@a.example …"
        );
    }
}
