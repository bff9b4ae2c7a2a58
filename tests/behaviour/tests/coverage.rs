//! `COVERAGE.md` names tests that exist, for every case and report.

use std::path::Path;

#[test]
fn every_case_and_report_names_tests_that_exist() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = std::fs::read_to_string(package.join("COVERAGE.md")).expect("COVERAGE.md");
    let mut rows = Vec::new();
    for line in table
        .lines()
        .filter(|l| l.starts_with("| ") && l.contains('`'))
    {
        let mut columns = line.trim_matches('|').split('|').map(str::trim);
        let (Some(row), Some(tests)) = (columns.next(), columns.next()) else {
            panic!("a row of two columns: {line}");
        };
        for test in tests.split(", ") {
            let (file, name) = test.trim_matches('`').split_once("::").expect(test);
            let path = match file.split_once('/') {
                Some((package_name, file)) => {
                    format!("../../crates/{package_name}/tests/{file}.rs")
                }
                None => format!("tests/{file}.rs"),
            };
            let source = std::fs::read_to_string(package.join(&path)).expect(&path);
            let signature = format!("async fn {name}() {{");
            let attribute = source
                .lines()
                .zip(source.lines().skip(1))
                .find_map(|(above, line)| (line == signature).then_some(above));
            assert!(
                attribute.is_some_and(|a| a.starts_with("#[tokio::test")),
                "{row}: no test {name} in {path}"
            );
        }
        rows.push(row.to_owned());
    }
    let cases = (1..=30).map(|n| n.to_string());
    let reports =
        "A1 A3 A4 A5 A6 A7 C3 C4 C5 C6 C7 C8 D3 D6 D8 E2 E3 E4 E5 F3 F4 F6 F7 F8 H1 H2 H3 K2 L1 L2";
    let expected: Vec<String> = cases.chain(reports.split(' ').map(str::to_owned)).collect();
    assert_eq!(rows, expected);
}
