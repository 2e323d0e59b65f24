select is_missing as "is_missing!", request, refused, queues, over from pipeline.ask_cancel_v1($1)
