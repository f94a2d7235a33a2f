//! Parameters of statements, whose PostgreSQL types are known without asking the server.

use tokio_postgres::types::{ToSql, Type};

/// A type of single values.
pub(super) trait Scalar: ToSql + Sync {
    /// The PostgreSQL type.
    const TYPE: Type;
    /// The type of arrays of it.
    const ARRAY: Type;
}

impl Scalar for &str {
    const TYPE: Type = Type::TEXT;
    const ARRAY: Type = Type::TEXT_ARRAY;
}

impl Scalar for String {
    const TYPE: Type = Type::TEXT;
    const ARRAY: Type = Type::TEXT_ARRAY;
}

impl Scalar for &[u8] {
    const TYPE: Type = Type::BYTEA;
    const ARRAY: Type = Type::BYTEA_ARRAY;
}

impl Scalar for bool {
    const TYPE: Type = Type::BOOL;
    const ARRAY: Type = Type::BOOL_ARRAY;
}

impl Scalar for i64 {
    const TYPE: Type = Type::INT8;
    const ARRAY: Type = Type::INT8_ARRAY;
}

impl<T: Scalar> Scalar for Option<T> {
    const TYPE: Type = T::TYPE;
    const ARRAY: Type = T::ARRAY;
}

/// A parameter of a statement.
pub(super) trait Param: ToSql + Sync {
    /// Returns the PostgreSQL type.
    fn sql_type(&self) -> Type;

    /// Returns the parameter as the driver takes it.
    fn to_sql_param(&self) -> &(dyn ToSql + Sync);
}

impl<T: Scalar> Param for T {
    fn sql_type(&self) -> Type {
        T::TYPE
    }

    fn to_sql_param(&self) -> &(dyn ToSql + Sync) {
        self
    }
}

impl<T: Scalar> Param for Vec<T> {
    fn sql_type(&self) -> Type {
        T::ARRAY
    }

    fn to_sql_param(&self) -> &(dyn ToSql + Sync) {
        self
    }
}

impl<T: Scalar> Param for Option<Vec<T>> {
    fn sql_type(&self) -> Type {
        T::ARRAY
    }

    fn to_sql_param(&self) -> &(dyn ToSql + Sync) {
        self
    }
}
