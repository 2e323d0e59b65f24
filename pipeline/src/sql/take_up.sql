select queues, over, asked from pipeline.take_up_v1($1)
