-- The job that measured a model last in 32, 16 and 8 bits; what it found lies in the model's directory.
ALTER TABLE models ADD COLUMN precisions_job TEXT;
-- How fast its training was, on how many devices, as JSON.
ALTER TABLE models ADD COLUMN speed TEXT;
