//! Deserializer that reads structs from objects only. Serde's own also reads the elements of an array as a struct's fields
//! in their order.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// Returns a deserializer that reads structs, at all levels, from objects only. Values that serde buffers first, such as
/// those of untagged enums, are read as before.
///
/// ```
/// use agent_platform::json::objects_only;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Point { x: i32, y: i32 }
///
/// let read = |text| Point::deserialize(objects_only(&mut serde_json::Deserializer::from_str(text)));
/// assert!(read(r#"{"x": 1, "y": 2}"#).is_ok_and(|point| (point.x, point.y) == (1, 2)));
/// assert!(read("[1, 2]").is_err());
/// ```
pub fn objects_only<'de, D: Deserializer<'de>>(deserializer: D) -> impl Deserializer<'de, Error = D::Error> {
    ObjectsOnly(deserializer)
}

/// Wrapper of a deserializer, and of the visitors, seeds and accesses to which it is passed on.
struct ObjectsOnly<T>(T);

macro_rules! forward_deserialize {
    ($($method:ident($($name:ident: $type:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, Self::Error> {
            self.0.$method($($name,)* ObjectsOnly(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectsOnly<D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.deserialize_map(ObjectsOnly(visitor))
    }

    forward_deserialize! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_i128();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_u128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_map();
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
        deserialize_ignored_any();
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! forward_visit {
    ($($method:ident($type:ty);)*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<Self::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for ObjectsOnly<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }

    forward_visit! {
        visit_bool(bool);
        visit_i8(i8);
        visit_i16(i16);
        visit_i32(i32);
        visit_i64(i64);
        visit_i128(i128);
        visit_u8(u8);
        visit_u16(u16);
        visit_u32(u32);
        visit_u64(u64);
        visit_u128(u128);
        visit_f32(f32);
        visit_f64(f64);
        visit_char(char);
        visit_str(&str);
        visit_borrowed_str(&'de str);
        visit_string(String);
        visit_bytes(&[u8]);
        visit_borrowed_bytes(&'de [u8]);
        visit_byte_buf(Vec<u8>);
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.visit_some(ObjectsOnly(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.visit_newtype_struct(ObjectsOnly(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<Self::Value, A::Error> {
        self.0.visit_seq(ObjectsOnly(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        self.0.visit_map(ObjectsOnly(members))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<Self::Value, A::Error> {
        self.0.visit_enum(ObjectsOnly(variant))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for ObjectsOnly<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(ObjectsOnly(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for ObjectsOnly<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Self::Error> {
        self.0.next_element_seed(ObjectsOnly(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for ObjectsOnly<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Self::Error> {
        self.0.next_key_seed(ObjectsOnly(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Self::Error> {
        self.0.next_value_seed(ObjectsOnly(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for ObjectsOnly<A> {
    type Error = A::Error;
    type Variant = ObjectsOnly<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), Self::Error> {
        let (value, variant) = self.0.variant_seed(ObjectsOnly(seed))?;
        Ok((value, ObjectsOnly(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for ObjectsOnly<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), Self::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Self::Error> {
        self.0.newtype_variant_seed(ObjectsOnly(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Self::Error> {
        self.0.tuple_variant(len, ObjectsOnly(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.struct_variant(fields, ObjectsOnly(visitor))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Outer<'t> {
        inner: Option<Inner>,
        list: Vec<Inner>,
        by_name: BTreeMap<String, Inner>,
        pair: (i8, Option<f64>),
        kinds: Vec<Kind>,
        any: Value,
        text: &'t str,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Inner {
        a: u8,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    enum Kind {
        Unit,
        Newtype(Inner),
        Tuple(u8, u8),
        Struct { a: u8 },
    }

    const OBJECTS: &str = r#"{"inner":{"a":1},"list":[{"a":2}],"by_name":{"x":{"a":3}},"pair":[-4,0.5],
        "kinds":["Unit",{"Newtype":{"a":5}},{"Tuple":[6,7]},{"Struct":{"a":8}}],
        "any":[{"b":[null,true]}],"text":"t"}"#;

    fn read(text: &str) -> Result<Outer<'_>, serde_json::Error> {
        Outer::deserialize(objects_only(&mut serde_json::Deserializer::from_str(text)))
    }

    #[test]
    fn objects_are_read_as_serde_reads_them() {
        let expected: Outer<'_> = serde_json::from_str(OBJECTS).expect("objects");
        assert_eq!(read(OBJECTS).expect("objects"), expected);
        let raw = <&RawValue>::deserialize(objects_only(&mut serde_json::Deserializer::from_str("[1, 2]")));
        assert_eq!(raw.expect("any value").get(), "[1, 2]");
    }

    #[test]
    fn arrays_are_not_accepted_as_structs_at_any_level() {
        for (object, array) in [
            (r#""inner":{"a":1}"#, r#""inner":[1]"#),
            (r#""list":[{"a":2}]"#, r#""list":[[2]]"#),
            (r#"{"x":{"a":3}}"#, r#"{"x":[3]}"#),
            (r#"{"Newtype":{"a":5}}"#, r#"{"Newtype":[5]}"#),
        ] {
            let text = OBJECTS.replace(object, array);
            assert!(serde_json::from_str::<Outer<'_>>(&text).is_ok(), "serde itself reads {array}");
            let error = read(&text).expect_err("an array in place of an object").to_string();
            assert!(error.starts_with("invalid type: sequence, expected struct Inner"), "{array}: {error}");
        }
        let error = read("[null]").expect_err("an array in place of an object").to_string();
        assert!(error.starts_with("invalid type: sequence, expected struct Outer"), "{error}");
    }
}
