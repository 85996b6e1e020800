//! Results of inference for the gallery: one image, what its layers make of it, and folders of images,
//! some of them scored on labels.

use lyceum::{
    models::Evaluation,
    web::{page::Nav, views::*},
};

use super::{
    gallery::{NOW, Word, layout},
    models::{ID, colours, detections, evaluation, object, picture},
};

/// Objects in one image.
pub fn objects(word: &Word) -> AnswerPage {
    let boxes = vec![object(word, (0, Some(0.93))), object(word, (1, Some(0.21)))];
    let said = boxes.iter().map(|one| ScoredLabel {
        class: one.class.clone(),
        value: "93.0 %".to_owned(),
        width: 93.0,
        score: one.score,
    });
    AnswerPage {
        answers: said.collect(),
        drawing: Some(Drawing { boxes, ..picture(&word("cat on a mat.png")) }),
        legend: colours(word),
        grad_cam: None,
        ..answer(word)
    }
}

/// An image in which nothing was found, before its layers are computed.
pub fn nothing(word: &Word) -> AnswerPage {
    AnswerPage {
        is_live: true,
        answers: Vec::new(),
        drawing: Some(picture(&word("cat on a mat.png"))),
        legend: Vec::new(),
        grad_cam: None,
        seen: None,
        layers: Vec::new(),
        layer_count: 0,
        ..answer(word)
    }
}

pub fn answer(word: &Word) -> AnswerPage {
    let said = |class: &str, value: &str, width: f64| ScoredLabel {
        class: word(class),
        value: value.to_owned(),
        width,
        score: None,
    };
    let layer = |name: &str, number: usize| LayerRow {
        name: word(name),
        kind: "Conv2D".to_owned(),
        shape: "14 × 14 × 32".to_owned(),
        values: "0.210 ± 0.430".to_owned(),
        href: format!("/models/{ID}/tests/{ID}/layers/{number}"),
    };
    AnswerPage {
        layout: layout(word).at(Nav::Models),
        model: (ID.to_owned(), word("Street scenes, summer")),
        api: format!("/api/v1/models/{ID}/tests/{ID}"),
        job: ID.to_owned(),
        picture: word("cat on a mat.png"),
        snapshot: "epoch-00002.keras".to_owned(),
        when: Moment::ago(NOW.plus_seconds(-60), NOW),
        state: "answered",
        is_live: false,
        progress: None,
        detail: String::new(),
        is_answered: true,
        drawing: None,
        legend: Vec::new(),
        answers: vec![said("person", "87.5 %", 87.5), said("bicycle", "12.0 %", 12.0), said("car", "0.5 %", 0.5)],
        grad_cam: Some((word("person"), "/static/favicon.svg".to_owned())),
        seen: Some("/static/favicon.svg".to_owned()),
        layers: vec![layer("conv2d", 0), layer("dense", 1)],
        layer_count: 214,
    }
}

/// A layer with filters, and weights of which there is only a histogram.
pub fn layer(word: &Word) -> LayerPage {
    let histogram = Histogram {
        bars: "M0.0 96v-20.0h99.0V96zM100.0 96v-92.0h99.0V96zM200.0 96v-31.5h99.0V96z".to_owned(),
        least: "-0.412".to_owned(),
        greatest: "0.398".to_owned(),
        words: "Histogram of the values from -0.412 to 0.398".to_owned(),
    };
    let facts =
        vec![("mean", "0.0021".to_owned()), ("standard deviation", "0.08".to_owned()), ("zeros", "12.50 %".to_owned())];
    let values = LayerValues {
        title: "Activations",
        name: String::new(),
        shape: "14 × 14 × 128".to_owned(),
        image: Some(format!("/api/v1/models/{ID}/tests/{ID}/3")),
        shown: "64 of 128 maps".to_owned(),
        is_tiled: true,
        histogram: Some(histogram),
        facts,
    };
    let weights = |name: &str, image: Option<String>| LayerValues {
        title: "Weights",
        name: word(name),
        shape: "3 × 3 × 64 × 128".to_owned(),
        image,
        shown: "8 of 64 channels, 8 of 128 filters".to_owned(),
        ..values.clone()
    };
    LayerPage {
        layout: layout(word).at(Nav::Models),
        model: (ID.to_owned(), word("Street scenes, summer")),
        test: format!("/models/{ID}/tests/{ID}"),
        picture: word("cat on a mat.png"),
        number: 3,
        total: 214,
        name: word("stage2_block1_conv1"),
        kind: word("Conv2D"),
        shape: "14 × 14 × 128".to_owned(),
        parameters: "73856".to_owned(),
        previous: Some(format!("/models/{ID}/tests/{ID}/layers/2")),
        next: Some(format!("/models/{ID}/tests/{ID}/layers/4")),
        parts: vec![
            values.clone(),
            weights("stage2_block1_conv1/kernel", values.image.clone()),
            weights("stage2_block1_conv1/bias", None),
        ],
    }
}

pub fn answers(word: &Word) -> AnswersPage {
    let said = |class: &str, value: &str, width: f64| ScoredLabel {
        class: word(class),
        value: value.to_owned(),
        width,
        score: None,
    };
    let card = |(n, first): (usize, &str)| AnswerCard {
        name: word(&format!("summer/{n:04}.jpg")),
        thumb: "/static/favicon.svg".to_owned(),
        drawing: None,
        label: (!first.is_empty()).then(|| (word("dog"), n != 1)),
        said: if first.is_empty() { Vec::new() } else { vec![said(first, "87.5 %", 87.5), said("car", "9.1 %", 9.1)] },
        error: if first.is_empty() { word("is a web page or XML, not an image") } else { String::new() },
        unscored: String::new(),
    };
    let link = |class: &str, count: usize| ClassLink {
        class: word(class),
        count,
        href: format!("/models/{ID}/tests/{ID}?class=x"),
        is_chosen: class == "dog",
    };
    AnswersPage {
        layout: layout(word).at(Nav::Models),
        model: (ID.to_owned(), word("Street scenes, summer")),
        href: format!("/models/{ID}/tests/{ID}"),
        job: ID.to_owned(),
        folder: word("/home/ada/pictures/of the summer"),
        snapshot: "epoch-00002.keras".to_owned(),
        when: Moment::ago(NOW.plus_seconds(-60), NOW),
        total: 321,
        broken: 1,
        classes: vec![link("person", 200), link("dog", 90), link("car", 30)],
        class: word("dog"),
        chosen: 90,
        cards: (0..).zip(["dog", "dog", "dog", ""]).map(card).collect(),
        scored: Vec::new(),
        labels: Vec::new(),
        refused: String::new(),
        legend: Vec::new(),
        has_boxes: false,
        evaluation: Some(MeasuredSplit::new(None, &Evaluation { split: String::new(), ..evaluation(word) }, None)),
    }
}

/// Boxes beside the true ones, and images without labels.
pub fn scored(word: &Word) -> AnswersPage {
    let whole = answers(word);
    let cards = whole.cards.iter().take(2).map(|card| AnswerCard {
        label: None,
        drawing: Some(Drawing { boxes: vec![object(word, (0, Some(0.93)))], ..picture(&card.name) }),
        unscored: word("no file of boxes"),
        ..card.clone()
    });
    AnswersPage {
        cards: cards.collect(),
        scored: detections(word).cards,
        labels: vec![
            "3 images scored on labels of the kind yolo.".to_owned(),
            format!("Not scored, because the model does not have the class: {} (2 boxes).", word("star")),
        ],
        refused: word("/home/ada/pictures: no image has a file of boxes"),
        legend: colours(word),
        has_boxes: true,
        ..whole
    }
}

pub fn waiting(word: &Word) -> AnswerPage {
    AnswerPage {
        state: "waiting",
        is_live: true,
        progress: Some((320, 1797)),
        is_answered: false,
        answers: Vec::new(),
        grad_cam: None,
        seen: None,
        layers: Vec::new(),
        layer_count: 0,
        ..answer(word)
    }
}
