use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::*;

/// Items as text.
#[derive(Debug, Default, PartialEq)]
struct Texts(Vec<String>);

impl Items for Texts {
    type Error = ListError;

    fn item(&mut self, index: usize, text: &[u8]) -> Result<(), ListError> {
        assert_eq!(index, self.0.len());
        self.0.push(String::from_utf8_lossy(text).into_owned());
        Ok(())
    }
}

/// What becomes of a list that arrives in these pieces.
fn split(pieces: &[&[u8]]) -> Result<(Texts, ListMeta), String> {
    let mut splitter = Splitter::new(Texts::default());
    let pushed = pieces.iter().try_for_each(|piece| splitter.push(piece));
    pushed.and_then(|()| splitter.finish()).map_err(|error| error.to_string())
}

fn whole(list: &str) -> Result<(Texts, ListMeta), String> {
    split(&[list.as_bytes()])
}

/// Any JSON, with texts that look like the end of something.
fn value() -> impl Strategy<Value = Value> {
    let text = prop::sample::select(vec!["", "<", "\"", "\\", "}]", "{\"items\":[", "\\\"", "\u{2028}é"]);
    let leaf = prop_oneof![Just(json!(null)), any::<i32>().prop_map(Value::from), text.clone().prop_map(Value::from)];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(text.clone(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn item() -> impl Strategy<Value = Value> {
    (value(), value()).prop_map(|(a, b)| json!({ "metadata": a, "spec": b }))
}

/// As Go writes texts.
fn escaped(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn items_are_found_wherever_the_text_is_cut(
        items in prop::collection::vec(item(), 0..5),
        is_pretty: bool,
        annotation in value(),
        cuts in prop::collection::vec(any::<Index>(), 0..8),
    ) {
        // `annotations` is before the items and `metadata` after them.
        let list = json!({ "annotations": { "items": [annotation] }, "items": items, "metadata": { "continue": "abc", "resourceVersion": "7" } });
        let list = escaped(&if is_pretty { serde_json::to_string_pretty(&list) } else { serde_json::to_string(&list) }.unwrap());
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(list.len() + 1)).chain([0, list.len()]).collect();
        cuts.sort_unstable();
        let (found, metadata) = split(&cuts.windows(2).map(|cut| &list.as_bytes()[cut[0]..cut[1]]).collect::<Vec<_>>()).unwrap();
        let found: Vec<Value> = found.0.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        prop_assert_eq!(found, items);
        prop_assert_eq!(metadata.continue_token.as_deref(), Some("abc"));
        prop_assert_eq!(metadata.resource_version.as_deref(), Some("7"));
    }

    #[test]
    fn any_bytes_give_the_same_in_one_piece_and_byte_by_byte(
        bytes in "[\\[\\]{},:\" a\\\\]{0,40}",
        is_list: bool,
    ) {
        let text = if is_list { format!("{{\"items\":[{bytes}") } else { bytes };
        prop_assert_eq!(whole(&text), split(&text.as_bytes().chunks(1).collect::<Vec<_>>()));
    }
}

#[test]
fn list_of_nothing_is_empty_or_null() {
    for list in ["{\"items\":[]}", "{\"items\":null}", " {\n\"metadata\" : null, \"items\" : [ ] }\n"] {
        assert_eq!(whole(list), Ok((Texts::default(), ListMeta::default())), "{list}");
    }
}

#[test]
fn invalid_list_is_refused_with_its_place() {
    let said = |list: &str| whole(list).unwrap_err();
    assert_eq!(said("Unauthorized"), "expected value at line 1 column 1");
    assert_eq!(said("{}"), "missing field `items` at line 1 column 2");
    assert_eq!(said(r#"{"items":{}}"#), "invalid type: map, expected an empty array at line 1 column 9");
    assert_eq!(said(r#"{"items":[{},[]]}"#), "unexpected '[' where items[1] should begin");
    assert_eq!(said(r#"{"items":[{}{}]}"#), "unexpected '{' where items[0] has ended");
    assert_eq!(said(r#"{"items":[{},]}"#), "unexpected ']' where items[1] should begin");
    assert_eq!(said(r#"{"items":[{},{"a":"}]"#), "cut short in items[1]");
    assert_eq!(said(r#"{"items":[{}]"#), "EOF while parsing an object at line 1 column 11");
    assert_eq!(said(r#"{"items":[{}]}{}"#), "trailing characters at line 1 column 13");
    assert_eq!(said(r#"{"items":[{}],"items":[{}]}"#), "duplicate field `items` at line 1 column 19");
    assert!(said(r#"{"it\u0065ms":[{}]}"#).starts_with("trailing characters"), "{}", said(r#"{"it\u0065ms":[{}]}"#));
}

#[test]
fn list_of_any_length_needs_no_more_than_one_item() {
    let item = format!("{{\"a\":\"{}\"}}", "\\u003c".repeat(100_000));
    let mut splitter = Splitter::new(Texts::default());
    splitter.push(b"{\"items\":[").unwrap();
    for _ in 0..20 {
        for piece in item.as_bytes().chunks(1000) {
            splitter.push(piece).unwrap();
        }
        assert_eq!(splitter.items.0.pop().as_deref(), Some(&*item));
        splitter.count = 0;
        splitter.push(b",").unwrap();
    }
    assert!(splitter.text.capacity() <= 2 * item.len(), "{}", splitter.text.capacity());
}

#[test]
fn endless_item_or_envelope_is_refused() {
    let mut splitter = Splitter::new(Texts::default());
    splitter.push(b"{\"items\":[{},{\"a\":\"").unwrap();
    let pieces = LARGEST_ITEM / (1 << 20) + 1;
    let refused = (0..pieces).find_map(|_| splitter.push(&vec![b'x'; 1 << 20]).err()).unwrap();
    assert_eq!(refused.to_string(), "items[1] is longer than 16 MiB");
    let long = format!("{{\"metadata\":\"{}", "x".repeat(64 << 10));
    assert_eq!(whole(&long).unwrap_err(), "more than 64 KiB are outside of \"items\"");
}

#[test]
fn item_that_is_not_decoded_is_named() {
    let mut taken = Vec::new();
    let mut splitter = Splitter::new(Each::new(|item: std::collections::BTreeMap<String, u32>| taken.push(item)));
    let refused = splitter.push(br#"{"items":[{"a":1},{"a":"1"}]}"#).unwrap_err();
    assert_eq!(refused.to_string(), "items[1]: invalid type: string \"1\", expected u32 at line 1 column 8");
    drop(splitter);
    assert_eq!(taken.len(), 1);
}
