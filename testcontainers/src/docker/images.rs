//! Which images the servers come from.

use crate::{Error, variable};

/// An image, and the variable that names another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Name and tag, as `docker run` takes them.
    pub(crate) reference: String,
    /// The variable to name in a message.
    pub(crate) variable: &'static str,
}

impl Image {
    /// Returns the stock image of a version of Kafka, or the image in `LEVADA_KAFKA_IMAGE`.
    pub(crate) fn kafka(version: &str) -> Result<Image, Error> {
        Image::chosen("LEVADA_KAFKA_IMAGE", &format!("apache/kafka:{version}"))
    }

    /// Returns the stock image of a major version of Postgres, or the image in `LEVADA_POSTGRES_IMAGE`.
    pub(crate) fn postgres(version: Option<&str>) -> Result<Image, Error> {
        Image::chosen("LEVADA_POSTGRES_IMAGE", &format!("postgres:{}", version.unwrap_or("17")))
    }

    fn chosen(variable: &'static str, stock: &str) -> Result<Image, Error> {
        match variable::text(variable)? {
            Some(reference) if reference.is_empty() => {
                Err(Error::Variable { variable, reason: "it is empty" })
            }
            chosen => Ok(Image { reference: chosen.unwrap_or_else(|| stock.to_owned()), variable }),
        }
    }

    /// Returns name and tag. A colon before the last slash is that of a registry's port; what follows a digest's last
    /// colon goes back to the same place when the two are joined.
    pub(super) fn name_and_tag(&self) -> (&str, &str) {
        match self.reference.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, tag),
            _ => (&self.reference, "latest"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Image;

    #[test]
    fn a_port_is_no_tag() {
        let split = |reference: &str| {
            let image = Image { reference: reference.to_owned(), variable: "X" };
            let (name, tag) = image.name_and_tag();
            format!("{name} {tag}")
        };
        assert_eq!(split("postgres"), "postgres latest");
        assert_eq!(split("apache/kafka:4.3.0"), "apache/kafka 4.3.0");
        assert_eq!(split("host:5000/kafka"), "host:5000/kafka latest");
        assert_eq!(split("host:5000/kafka:1"), "host:5000/kafka 1");
        assert_eq!(split("kafka@sha256:ab"), "kafka@sha256 ab");
    }
}
