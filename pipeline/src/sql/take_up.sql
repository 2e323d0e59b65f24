select state as "state!", refused, queues, over, asked, wait_ms from pipeline.take_up_v1($1, $2)
