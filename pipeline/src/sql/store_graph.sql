select pipeline.store_graph_v1($1, $2, $3, $4::text::json, $5::text::json, $6::text::json,
                               $7::text::json, $8::text::json, $9) as "id!"
