-- Returns the keys of the steps that have a job, with the types of their jobs, in all graphs.
select distinct n.key, n.job_type as "job_type!" from pipeline.nodes n
where n.job_type is not null
order by n.key, n.job_type
