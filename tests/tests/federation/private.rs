//! A private run from end to end with an evaluator: what comes out, what the operators can ask meanwhile, and vectors that are longer
//! than one message.

use std::fs;
use std::process::Command;

use dp_pvi_tests::federation::{Federation, Party, complete, outcome, run};
use dp_pvi_tests::methods::Data;
use dp_pvi_tests::place::binary;
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use dp_pvi_tests::statements::statements_cover_ledgers;
use serde_json::Value;

fn parties(sizes: &[usize]) -> Vec<Party> {
    let mut parties = Records::generated(sizes.iter().sum(), 3, 0).sites(sizes, Likelihood::Logistic);
    parties.push(Party::evaluator("judge", Records::generated(200, 3, 10_000).csv(Likelihood::Logistic)));
    parties
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Everything that acceptance asks of a result: names, numbers, statement per site, held-out metrics of every round, one report without
/// outside references, predictions with uncertainty.
#[test]
fn a_private_run_leaves_a_posterior_a_report_and_exact_books() {
    for (schedule, rounds) in [(Schedule::Sequential(4), 8), (Schedule::Synchronous(6), 6)] {
        let task = Task { schedule, epsilon: Some(2.0), ..Task::default() };
        let parties = parties(&[6000, 4000]);
        let federation = Federation::new(&task.toml(), &task.schema(3), &parties);
        let events = complete(&federation, &parties);
        let closed = events.iter().filter(|e| e["event"] == "round-closed" && e["outcome"] == "complete").count();
        assert_eq!(closed, rounds);

        let posterior = federation.posterior();
        assert_eq!(posterior["rounds"], rounds as u64);
        let names: Vec<_> = posterior["coefficients"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(names, ["x0", "x1", "x2"]);
        for coefficient in posterior["coefficients"].as_array().unwrap() {
            assert!(coefficient["mean"].as_f64().unwrap().is_finite() && coefficient["sd"].as_f64().unwrap() > 0.0);
        }
        // The generator's rule is 1.5, -1, 1.5 with every seventh label turned: signs must come out, whatever the noise at ε = 2.
        let means: Vec<_> = posterior["coefficients"].as_array().unwrap().iter().map(|c| c["mean"].as_f64().unwrap()).collect();
        assert!(means[0] > 0.2 && means[1] < -0.1 && means[2] > 0.2, "{means:?}");

        // One statement for each site: what the task promises, and what its ledger says.
        let statements = posterior["privacy"].as_array().unwrap();
        assert_eq!(statements.len(), 2);
        for statement in statements {
            let site = statement["site"].as_str().unwrap();
            let stated = statement["epsilon"].as_f64().unwrap();
            assert!(stated > 1.5 && stated <= 2.0, "{statement}");
            assert_eq!(
                (&statement["unit"], &statement["relation"], &statement["trust"]),
                (&"record".into(), &"replace-one".into(), &"local".into())
            );
            let spent = json(&run(&mut federation.client_command(site, &["budget", "show", "--format", "json"])));
            assert!((spent["epsilon_spent"].as_f64().unwrap() - stated).abs() < 1e-3, "{spent} against {statement}");
            run(&mut federation.client_command(site, &["ledger", "verify"]));
        }

        // The evaluator's figures, for the prior and after every round; better than a coin in the end.
        let evaluations = posterior["evaluations"].as_array().unwrap();
        assert!(evaluations.len() >= rounds, "{} evaluations", evaluations.len());
        let last = evaluations.last().unwrap();
        assert!(
            last["metrics"]["accuracy"].as_f64().unwrap() > 0.7 && last["metrics"]["log_likelihood"].as_f64().unwrap() > -0.69,
            "{last}"
        );

        let report = fs::read_to_string(federation.home("server").join("results/report.html")).unwrap();
        assert!(report.contains("<svg") && report.trim_end().ends_with("</html>"));
        for outside in ["src=\"http", "href=\"http", "@import", "url(http", "<script src"] {
            assert!(!report.contains(outside), "the report is not self-contained: {outside}");
        }
        for word in ["x0", "x1", "x2", "site-1", "site-2"] {
            assert!(report.contains(word), "{word} is not in the report");
        }

        predictions(&federation);
    }
}

/// `predict` on the evaluator's rows: a probability within its own interval for every row.
fn predictions(federation: &Federation) {
    let text = run(Command::new(binary("dp-pvi-client"))
        .args(["predict", "--posterior"])
        .arg(federation.home("server").join("results/posterior.json"))
        .arg("--data")
        .arg(federation.home("judge").join("data/records.csv")));
    let mut lines = text.lines();
    let header: Vec<_> = lines.next().unwrap().split(',').collect();
    assert_eq!(header, ["row", "probability", "lower", "upper", "problem"]);
    let mut rows = 0;
    for line in lines {
        // No problem: the last cell is empty.
        let cells: Vec<f64> = line.strip_suffix(',').unwrap().split(',').map(|c| c.parse().unwrap()).collect();
        assert!(0.0 < cells[2] && cells[2] < cells[3] && cells[3] < 1.0 && (0.0..=1.0).contains(&cells[1]), "{line}");
        rows += 1;
    }
    assert_eq!(rows, 200);
}

/// A label of three classes from the file to the prediction: a network learns them, the evaluator says how well, and `predict` names them.
#[test]
fn three_classes_are_learned_judged_and_named() {
    let schema = Data::Wards.schema();
    let task = "name = \"wards\"\n[model]\nfamily = \"neural-network\"\nformula = \"y ~ 0 + .\"\nhidden = [10]\nsamples = 2\nclasses = 3\n\
                [schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 4\nupdate = \"dp-optimisation\"\n\
                steps = 60\noptimizer = \"adam\"\nlearning_rate = 0.02\nclip_norm = 5.0\nsampling_rate = 0.2\n\
                [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 4.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n";
    let site = |m: usize| Party::site_of(&format!("site-{}", m + 1), Data::Wards.file(2000, m * 2000), 2000);
    let parties = [site(0), site(1), Party::evaluator("judge", Data::Wards.file(300, 10_000))];
    let federation = Federation::new(task, &schema, &parties);
    complete(&federation, &parties);
    let posterior = federation.posterior();
    let metrics = &posterior["evaluations"].as_array().unwrap().last().unwrap()["metrics"];
    let of = |name: &str| metrics[name].as_f64().unwrap_or_else(|| panic!("no {name}: {metrics}"));
    // Three classes of about the same size: guessing gives -1.1, 0.33 and 0.5.
    assert!(of("log_likelihood") > -0.8 && of("accuracy") > 0.65 && of("auc") > 0.8 && of("brier") < 0.5, "{metrics}");
    assert!(metrics["rmse"].is_null() && metrics["deviance"].is_null() && metrics["ranked_probability_score"].is_null(), "{metrics}");
    // The diagonal of the confusion is what the accuracy counts; the bins of every class hold all records.
    let numbers = |value: &serde_json::Value| value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect::<Vec<_>>();
    let confusion: Vec<Vec<u64>> = metrics["confusion"].as_array().unwrap().iter().map(numbers).collect();
    assert_eq!((confusion.len(), confusion.iter().flatten().sum::<u64>()), (3, 300), "{metrics}");
    assert!(((0..3).map(|k| confusion[k][k]).sum::<u64>() as f64 / 300.0 - of("accuracy")).abs() < 1e-12, "{metrics}");
    for bins in metrics["class_reliability"].as_array().unwrap() {
        assert_eq!(bins.as_array().unwrap().iter().map(|bin| bin[2].as_u64().unwrap()).sum::<u64>(), 300, "{metrics}");
    }

    let data = federation.home("judge").join("data/records.csv");
    let predict = |more: &[&str]| {
        let mut command = Command::new(binary("dp-pvi-client"));
        command.args(["predict", "--posterior"]).arg(federation.home("server").join("results/posterior.json"));
        run(command.arg("--data").arg(&data).args(more))
    };
    let text = predict(&[]);
    let mut lines = text.lines();
    assert_eq!(lines.next().unwrap(), "row,class,probability of home,probability of ward,\"probability of intensive, care\",problem");
    let truth = fs::read_to_string(&data).unwrap();
    let mut hits = 0;
    for (line, truth) in lines.zip(truth.lines().skip(1)) {
        let (cells, class) = match line.split_once("\"intensive, care\"") {
            Some((row, rest)) => (format!("{row}2{rest}"), "\"intensive, care\""),
            None => (line.to_owned(), line.split(',').nth(1).unwrap()),
        };
        let probabilities: Vec<f64> = cells.split(',').skip(2).take(3).map(|cell| cell.parse().unwrap()).collect();
        assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9 && line.ends_with(','), "{line}");
        hits += usize::from(truth.ends_with(class));
    }
    assert!((hits as f64 / 300.0 - of("accuracy")).abs() < 1e-9, "the evaluator counted what predict says: {hits}");
    let objects = predict(&["--format", "json"]);
    let first = json(objects.lines().next().unwrap());
    assert_eq!(first["probabilities"].as_object().unwrap().len(), 3);
    assert!(first["probabilities"]["intensive, care"].is_number() && first["class"].is_string(), "{first}");
    // A label that is none of the classes is told before a run, by its place.
    fs::write(federation.home("site-1").join("data/records.csv"), "x0,x1,y\n0.1,0.2,home\n0.1,0.2,garden\n").unwrap();
    let (code, _, words) = outcome(&mut federation.client_command("site-1", &["check"]));
    assert!(code != 0 && words.contains("row 2, column `y`") && !words.contains("garden"), "{code}: {words}");
}

/// Pause, resume, status and stop through the admin socket, while sites wait.
#[test]
fn operators_pause_resume_and_stop_a_run() {
    let task = Task { schedule: Schedule::Synchronous(1000), tick: 1, ..Task::default() };
    let parties = parties(&[40, 40]);
    let federation = Federation::new(&task.toml(), &task.schema(3), &parties);
    let mut server = federation.start_server();
    let mut clients: Vec<_> = parties.iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
    let closed = |p: &dp_pvi_tests::federation::Process| p.events().iter().filter(|e| e["event"] == "round-closed").count();
    server.process.wait_until("a round has closed", |p| (closed(p) >= 1).then_some(()));

    run(&mut federation.server_command(&["pause"]));
    // The open round may still close; after that nothing does.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let at_pause = closed(&server.process);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(closed(&server.process), at_pause, "a round closed in the pause");
    let status = run(&mut federation.server_command(&["status", "--format", "json"]));
    assert!(json(&status).is_object(), "{status}");
    run(&mut federation.server_command(&["resume"]));
    server.process.wait_until("rounds close again", |p| (closed(p) > at_pause).then_some(()));

    run(&mut federation.server_command(&["stop"]));
    clients.iter_mut().for_each(|c| c.expect(0));
    server.process.expect(0);
    statements_cover_ledgers(&federation);
    let posterior = federation.posterior();
    let rounds = posterior["rounds"].as_u64().unwrap();
    assert!(rounds as usize >= at_pause && rounds < 1000);
    // What was not done was not charged: a site pays for the rounds that include it, and at most for the one that was open.
    let events = server.process.events();
    for site in ["site-1", "site-2"] {
        let includes = |e: &&Value| e["event"] == "round-closed" && e["included"].as_array().is_some_and(|i| i.contains(&site.into()));
        let included = events.iter().filter(includes).count() as u64;
        let releases =
            json(&run(&mut federation.client_command(site, &["budget", "show", "--format", "json"])))["releases"].as_u64().unwrap();
        assert!((included..=included + 1).contains(&releases), "{site}: {releases} charges, included in {included} rounds");
    }
}

/// Looking is free: `check`, `data inspect`, `plan` and `approve` neither join the run nor charge anything.
#[test]
fn looking_at_a_task_leaves_server_and_ledger_as_they_were() {
    let task = Task { schedule: Schedule::Synchronous(2), ..Task::default() };
    let parties = parties(&[40, 40]);
    let federation = Federation::new(&task.toml(), &task.schema(3), &parties);
    let mut server = federation.start_server();
    for site in ["site-1", "site-2"] {
        let ask = |arguments: &[&str]| {
            let mut command = federation.client_command(site, arguments);
            run(command.env("DP_PVI__SITE__SERVER", &server.address))
        };
        ask(&["check"]);
        ask(&["data", "inspect"]);
        let plan = json(&ask(&["plan", "--format", "json"]));
        assert_eq!(plan["would_run"], true, "{plan}");
        let cost = plan["epsilon_run"].as_f64().unwrap();
        assert!(cost > 0.9 && cost <= 1.0, "{plan}");
        ask(&["approve", plan["task"].as_str().unwrap()]);
        assert_eq!(json(&ask(&["budget", "show", "--format", "json"]))["releases"], 0);
    }
    // No one is there: nothing opened, although everyone looked.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let events = server.process.events();
    assert!(events.iter().all(|e| e["event"] == "listening"), "{events:?}");
    let mut clients: Vec<_> = parties.iter().map(|p| federation.start_client(&p.name, &server.address)).collect();
    clients.iter_mut().for_each(|c| c.expect(0));
    server.process.expect(0);
    statements_cover_ledgers(&federation);
}

/// One file for everyone: what the coordinator's `check` writes and prints is what every `plan` reads, and it is the server's task.
#[test]
fn every_plan_reads_what_check_writes() {
    let task = Task { schedule: Schedule::Synchronous(3), ..Task::default() };
    let parties = parties(&[40, 40]);
    let federation = Federation::new(&task.toml(), &task.schema(3), &parties);
    let (file, printed) = (federation.home("server").join("resolved.json"), federation.home("server").join("printed.json"));
    let drawing = federation.home("server").join("forecast.svg");
    let asked = ["--units", "40", "--forecast", drawing.to_str().unwrap()];
    let text = run(federation.server_command(&["check", "-o", file.to_str().unwrap(), "--format", "json"]).args(asked));
    fs::write(&printed, &text).unwrap();
    let forecast = &json(&text)["forecast"];
    assert_eq!((forecast["task"]["records"].as_u64(), forecast["task"]["sites"].as_u64()), (Some(80), Some(2)), "{forecast}");
    assert_eq!(forecast["settings"].as_array().unwrap().len(), 6, "{forecast}");
    // This schema has no intercept: its coefficients are x0 to x2.
    let drawing = fs::read_to_string(&drawing).unwrap();
    let coefficients = forecast["task"]["coefficients"].as_array().unwrap();
    assert_eq!(coefficients.len(), 3, "{forecast}");
    for coefficient in coefficients {
        let name = coefficient["name"].as_str().unwrap();
        assert!(drawing.contains(&format!(">{name}</text>")), "{name} is not in {drawing}");
    }
    let spoken = run(&mut federation.server_command(&["check", "--units", "40,60"]));
    assert!(spoken.contains("forecast  100 records at 2 sites"), "{spoken}");
    let (code, _, words) = outcome(&mut federation.server_command(&["check", "--units", "40,60", "--sites", "3"]));
    assert!(code == 2 && words.contains("one for every site"), "{code}: {words}");
    let hash = json(&text)["task_hash"].as_str().unwrap().to_owned();
    for task in [&file, &printed] {
        let task = task.to_str().unwrap();
        let plan = json(&run(&mut federation.client_command("site-1", &["plan", "--task", task, "--sites", "2", "--format", "json"])));
        assert_eq!((plan["task"].as_str(), plan["visits"].as_u64()), (Some(hash.as_str()), Some(3)), "{plan}");
        assert_eq!(&plan["forecast"], forecast, "the same bits at every party");
        let forecast = run(Command::new(binary("dp-pvi-sim")).args(["plan", task]));
        assert!(forecast.contains("3 visits"), "{forecast}");
    }
}

/// Means and precisions of 280,001 weights are 4.5 MB: more than the message limit of 4 MiB, in both directions.
#[test]
fn vectors_longer_than_a_message_travel_in_chunks() {
    const UNITS: usize = 140_000;
    let task = Task { schedule: Schedule::Sequential(1), ..Task::default() };
    let schema = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\n[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n";
    let csv: String = std::iter::once("x,y\n".to_owned()).chain((0..50).map(|i| format!("0.{i:02},{}\n", i % 2))).collect();
    let parties = [Party::site("site-1", csv.clone()), Party::site("site-2", csv)];
    let network = format!("family = \"neural-network\"\nhidden = [{UNITS}]\nsamples = 1");
    let toml = task.toml().replace("family = \"logistic-regression\"", &network).replace("expected_sites", "steps = 1\nexpected_sites");
    let toml = toml.replace("trust =", "clip_norm = 1.0\ntrust =");
    assert!(["steps = 1", "hidden", "clip_norm"].iter().all(|key| toml.contains(key)));
    let federation = Federation::new(&toml, schema, &parties);
    complete(&federation, &parties);
    let numbers = federation.posterior()["natural_parameters"].as_array().unwrap().len();
    // Weights of one number to every unit, and of the units and a constant to the output.
    assert_eq!(numbers, 2 * (2 * UNITS + 1));
    assert!(8 * numbers > 4 << 20);
}
