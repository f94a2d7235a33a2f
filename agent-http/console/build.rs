//! Embeds the files of `web/` and of the JavaScript client: writes one table of path, media type, hash and length, with the
//! content compressed with brotli and with gzip.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Folder of the JavaScript client, relative to the crate: the page imports the very files of the package.
const CLIENT: &str = "../../clients/js/src";
/// Placeholder of the assets' hash in the page and in the widget's loader.
const HASH_PLACEHOLDER: &str = "{{hash}}";
/// Number of hexadecimal digits of the hash in the assets' paths.
const HASH_DIGITS: usize = 12;

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    println!("cargo::rerun-if-changed=build.rs");
    let mut files = BTreeMap::new();
    collect(&root.join("web"), "", &mut files);
    collect(&root.join(CLIENT), "client/", &mut files);
    let hash = tree_hash(&files);
    let mut table = format!(
        "/// Hash of all assets, which is part of their paths.\npub(crate) const HASH: &str = {hash:?};\n"
    );
    table += "/// The files, ordered by path.\npub(crate) const FILES: &[File] = &[\n";
    for (number, (path, bytes)) in files.iter().enumerate() {
        let bytes = match path.as_str() {
            "index.html" => with_hash(bytes, &hash),
            "widget.js" => with_hash(&compact(bytes), &hash),
            path if path.ends_with(".css") => compact_style(bytes),
            path if path.ends_with(".js") && !path.starts_with("vendor/") => compact(bytes),
            _ => bytes.clone(),
        };
        let sha256 = hex::encode(Sha256::digest(&bytes));
        fs::write(out.join(format!("{number}.br")), brotli(&bytes))
            .expect("the output folder can be written");
        fs::write(out.join(format!("{number}.gz")), gzip(&bytes)).expect("the output folder can be written");
        let mime = media_type(path).expect("only files of known types are collected");
        writeln!(
            table,
            "    File {{ path: {path:?}, mime: {mime:?}, sha256: {sha256:?}, len: {len}, \
             brotli: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{number}.br\")), \
             gzip: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{number}.gz\")) }},",
            len = bytes.len(),
        )
        .expect("a string can be written");
    }
    table += "];\n";
    fs::write(out.join("files.rs"), table).expect("the output folder can be written");
}

/// Reads the files of a folder and of those in it; `prefix` precedes their paths.
fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let entry = entry.expect("the folder can be read");
        let name = entry.file_name().into_string().expect("file names are text");
        let path = format!("{prefix}{name}");
        if entry.file_type().expect("the file can be examined").is_dir() {
            collect(&entry.path(), &format!("{path}/"), files);
        } else if media_type(&path).is_some() {
            files.insert(path, fs::read(entry.path()).expect("the file can be read"));
        }
    }
}

/// Returns the media type of an embedded file; `None` for files that are not served, such as READMEs.
fn media_type(path: &str) -> Option<&'static str> {
    match path.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

fn tree_hash(files: &BTreeMap<String, Vec<u8>>) -> String {
    let mut tree = Sha256::new();
    for (path, bytes) in files {
        tree.update(path.len().to_le_bytes());
        tree.update(path);
        tree.update(Sha256::digest(bytes));
    }
    let mut hash = hex::encode(tree.finalize());
    hash.truncate(HASH_DIGITS);
    hash
}

/// Shortens a script or a style sheet: removes indentation, the lines that are empty or comments alone, and the ends of lines
/// after `;` and `{`, an eighth of the pages' size.
///
/// A comment is `//` and a space at the beginning of a line, or `/*` there to `*/` at the end of one. Template literals over
/// several lines are htm's and style sheets, in which indentation means nothing, and no line ends with a comment;
/// `tests/browser/source.test.js` checks that.
fn compact(text: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(text).expect("scripts and style sheets are text");
    let mut compacted = String::with_capacity(text.len());
    let mut is_comment = false;
    for line in text.lines().map(str::trim) {
        is_comment |= line.starts_with("/*") && (!line.contains("*/") || line.ends_with("*/"));
        if !is_comment && !line.is_empty() && !line.starts_with("// ") {
            compacted += line;
            if !line.ends_with([';', '{']) {
                compacted.push('\n');
            }
        }
        is_comment &= !line.ends_with("*/");
    }
    compacted.into_bytes()
}

/// Shortens a style sheet: as [`compact`] does, and without the spaces beside its punctuation and the zeros before points, which
/// no string of it has; `tests/browser/style.test.js` checks that.
fn compact_style(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(compact(text)).expect("style sheets are text");
    let spaces = [
        (" {", "{"),
        ("{ ", "{"),
        ("; }", "}"),
        (": ", ":"),
        ("; ", ";"),
        (", ", ","),
        (":0.", ":."),
        (" > ", ">"),
        ("}\n", "}"),
    ];
    spaces.into_iter().fold(text, |text, (from, to)| text.replace(from, to)).into_bytes()
}

fn with_hash(page: &[u8], hash: &str) -> Vec<u8> {
    let page = std::str::from_utf8(page).expect("the page is text");
    assert!(page.contains(HASH_PLACEHOLDER), "the page names no asset");
    page.replace(HASH_PLACEHOLDER, hash).into_bytes()
}

fn brotli(bytes: &[u8]) -> Vec<u8> {
    let mut compressed = Vec::new();
    let mut writer = brotli::CompressorWriter::new(&mut compressed, 64 * 1024, 11, 22);
    writer.write_all(bytes).expect("memory can be written");
    drop(writer);
    compressed
}

/// Compresses by zopfli, whose output is a twentieth smaller than that of zlib.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut compressed = Vec::new();
    let format = zopfli::Format::Gzip;
    zopfli::compress(zopfli::Options::default(), format, bytes, &mut compressed)
        .expect("memory can be written");
    compressed
}
