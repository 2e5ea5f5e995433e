WITH openauc_samples AS (  -- what each row is
    SELECT
        {columns_as_slices}CAST({score} AS {double}) AS score,
        CASE
            WHEN {label} IS NULL OR {pred} IS NULL OR {score} IS NULL THEN 'bad'
            WHEN {score_is_nan} THEN 'bad'
            WHEN {pred_is_bad} THEN 'bad'
            WHEN {label_is_unknown} THEN 'unknown'
            WHEN {label_is_bad} THEN 'bad'
            WHEN {label} = {pred} THEN 'correct'
            ELSE 'wrong'
        END AS kind
    FROM {source}
),
openauc_scores AS (  -- one row per distinct score: ties stay together
    SELECT
        {lines}score,
        COUNT(CASE WHEN kind = 'correct' OR kind = 'wrong' THEN 1 END) AS knowns,
        COUNT(CASE WHEN kind = 'correct' THEN 1 END) AS corrects,
        COUNT(CASE WHEN kind = 'unknown' THEN 1 END) AS unknowns,
        COUNT(CASE WHEN kind = 'bad' THEN 1 END) AS bads
    FROM openauc_samples
    GROUP BY {slices}score
),
openauc_accepted AS (  -- samples accepted where that score is the threshold
    SELECT
        {lines}knowns,
        corrects,
        unknowns,
        bads,
        SUM(knowns) OVER up_to AS knowns_accepted,
        SUM(corrects) OVER up_to AS corrects_accepted,
        SUM(unknowns) OVER up_to AS unknowns_accepted,
        SUM(unknowns) OVER ({within}) AS all_unknowns
    FROM openauc_scores
    WINDOW up_to AS ({partition}ORDER BY score {order} ROWS UNBOUNDED PRECEDING)
),
openauc_counts AS (  -- a pair in order counts 2, a tied one 1; NULL makes NULL of what is undefined
    SELECT
        {lines}CAST(COALESCE(SUM(knowns), 0) AS {integer}) AS n_known,
        CAST(COALESCE(SUM(unknowns), 0) AS {integer}) AS n_unknown,
        CAST(COALESCE(SUM(bads), 0) AS {integer}) AS n_bad,
        CASE WHEN SUM(bads) = 0 THEN CAST(NULLIF(SUM(knowns), 0) AS {double}) END AS known_total,
        CAST(NULLIF(SUM(unknowns), 0) AS {double}) AS unknown_total,
        CAST(SUM(corrects) AS {double}) AS correct_total,
        CAST(SUM(CAST(unknowns AS {exact}) * (2 * corrects_accepted - corrects)) AS {double}) AS correct_pairs,
        CAST(SUM(CAST(unknowns AS {exact}) * (2 * knowns_accepted - knowns)) AS {double}) AS pairs,
        CAST(MAX(CASE WHEN 20 * unknowns_accepted <= all_unknowns THEN knowns_accepted ELSE 0 END) AS {double})
            AS known_at_95tpr
    FROM openauc_accepted{per_slice}
)
SELECT
    {slices_as_columns}n_known,
    n_unknown,
    n_bad,
    correct_pairs / (2 * known_total * unknown_total) AS openauc,
    pairs / (2 * known_total * unknown_total) AS auroc,
    correct_total / known_total AS closed_set_accuracy,
    CASE WHEN n_unknown > 0 THEN 1 - known_at_95tpr / known_total END AS fpr_at_95tpr
FROM openauc_counts{in_order}
