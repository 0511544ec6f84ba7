"""The measured programs: this server and others (NATS, Redis, RabbitMQ, beanstalkd), libraries and Spark."""
