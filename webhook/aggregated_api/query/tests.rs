use proptest::prelude::*;

use super::*;

fn watch(query: &str) -> WatchQuery {
    match Query::parse(query).unwrap().verb {
        Verb::Watch(watch) => watch,
        verb @ Verb::List(_) => panic!("{query}: {verb:?}"),
    }
}

fn refused(query: &str) -> String {
    let StatusError { code, message } = Query::parse(query).unwrap_err();
    format!("{} {message}", code.as_u16())
}

#[test]
fn lists_take_any_version_limit_and_a_name() {
    let version = Some("5".parse().unwrap());
    for (query, verb) in [
        ("", Verb::List(None)),
        ("limit=500&resourceVersion=0&continue=&labelSelector=", Verb::List(None)),
        ("watch=false&resourceVersion=5", Verb::List(version)),
        ("resourceVersion=5&resourceVersionMatch=NotOlderThan&pretty=true", Verb::List(version)),
    ] {
        assert_eq!(Query::parse(query).unwrap(), Query { name: None, include: None, verb }, "{query}");
    }
    for query in ["fieldSelector=metadata.name%3Dd.a", "fieldSelector=metadata.name==d.a"] {
        assert_eq!(Query::parse(query).unwrap().name.as_deref(), Some("d.a"));
    }
}

#[test]
fn watches_begin_where_they_say() {
    let version = "5".parse().unwrap();
    for (query, start) in [
        ("watch=true", Start::Objects),
        ("watch=1&resourceVersion=0", Start::Objects),
        ("watch=1&resourceVersion=5", Start::After(Some(version))),
        (
            "watch=1&resourceVersion=5&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
            Start::After(Some(version)),
        ),
        ("watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", Start::After(None)),
        ("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", Start::MarkedObjects(None)),
        (
            "watch=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&resourceVersion=5",
            Start::MarkedObjects(Some(version)),
        ),
    ] {
        assert_eq!(watch(query).start, start, "{query}");
    }
    let informer = watch("allowWatchBookmarks=true&resourceVersion=5&timeoutSeconds=431&watch=true");
    assert_eq!(
        (informer.bookmarks, informer.timeout, informer.is_plain),
        (true, Some(Duration::from_secs(431)), false)
    );
    assert!(watch("watch=true").is_plain && !watch("watch=true&timeoutSeconds=1").is_plain);
    assert_eq!(watch("watch=1&timeoutSeconds=-1").timeout, None);
    assert_eq!(watch("watch=1&timeoutSeconds=0").timeout, None);
}

#[test]
fn contradictions_are_refused_as_kubernetes_does() {
    let queries = [
        "resourceVersion=abc",
        "resourceVersion=-1",
        "timeoutSeconds=1s&watch=1",
        "limit=many",
        "continue=abc",
        "labelSelector=a%3Db",
        "fieldSelector=spec.pod_name%3Da",
        "fieldSelector=metadata.name!%3Da",
        "fieldSelector=metadata.name%3Da,metadata.name%3Db",
        "sendInitialEvents=true",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersion=5&resourceVersionMatch=Exact",
        "resourceVersion=5&resourceVersionMatch=Newest",
        "watch=1&resourceVersionMatch=NotOlderThan",
        "watch=1&sendInitialEvents=true",
        "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact",
    ];
    insta::assert_snapshot!(queries.map(refused).join("\n"), @r#"
    400 resourceVersion "abc": invalid resource version: expected a number
    400 resourceVersion "-1": invalid resource version: expected a number
    400 timeoutSeconds "1s": invalid digit found in string
    400 limit "many": invalid digit found in string
    400 continue: lists are whole, so no token of one is known
    400 labelSelector: the objects have no labels
    400 fieldSelector "spec.pod_name=a": only metadata.name=NAME is supported
    400 fieldSelector "metadata.name!=a": only metadata.name=NAME is supported
    400 fieldSelector "metadata.name=a,metadata.name=b": only metadata.name=NAME is supported
    422 sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list
    422 resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided
    422 resourceVersionMatch: Forbidden: Exact isn't supported
    422 resourceVersionMatch: Unsupported value: "Newest": supported values: "NotOlderThan"
    422 resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided
    422 resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan
    422 resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"
    "#);
}

proptest! {
    #[test]
    fn any_query_is_answered(query in "[a-zA-Z=&%0-9.,+!\\\\ -]{0,80}", known in "(watch|resourceVersion|fieldSelector|timeoutSeconds|limit)=[ -~]{0,20}") {
        drop(Query::parse(&query));
        drop(Query::parse(&known));
    }
}
